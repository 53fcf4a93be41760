builtin.module {
  sched.kernel @linear params ["a_map", "b_map", "b_tail", "metadata", "d", "M", "N", "K", "pitch", "raster"] threads 128 cluster 1 tile [64 : i32, 64 : i32, 64 : i32] mma <#builtin.int<64>, "f16", "f16", "f32", #builtin.int<1>, #builtin.int<0>> shared_bytes 12304 {
  ^bb0(%a_map: !sched.map<"a", [32, 64], 2, 64>, %b_map: !sched.map<"b", [64, 64], 2, 128>, %b_tail: !sched.map<"b", [64, 64], 2, 128>, %metadata: !sched.ptr<"metadata", "u32">, %d: !sched.ptr<"d", "f16">, %M: !sched.size<"M", #builtin.int<32>>, %N: !sched.size<"N", #builtin.int<32>>, %K: !sched.size<"K", #builtin.int<32>>, %pitch: !sched.size<"pitch", #builtin.int<64>>, %raster: !sched.size<"raster", #builtin.int<32>>):
    sched.ring @a stages 1 bytes 4096 offset 0
    sched.ring @b stages 1 bytes 8192 offset 4096
    sched.barriers @full stages 1 arrivals 1 transaction_bytes 12288 offset 12288
    sched.barriers @empty stages 1 arrivals 4 offset 12296
    sched.role @consumer warpgroups 1 from 0 {
      sched.tiles {
      ^bb0(%m: i32, %n: i32):
        %rows = sched.rows_left %N from %n most 64 : !sched.size<"N", #builtin.int<32>>, i32 -> i32
        sched.loop unroll 8 {
        ^bb0(%step: i32):
          sched.one_thread {
            sched.acquire @empty
            sched.expect @full rows %rows : i32
            %0 = arith.constant 32 : i32
            %1 = arith.muli %step, %0 : i32
            sched.bulk_load %a_map[%1, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 64], 2, 64>
            %2 = arith.constant 64 : i32
            %3 = arith.muli %step, %2 : i32
            sched.bulk_load %b_map[%3, %n : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [64, 64], 2, 128>, i32 : !sched.map<"b", [64, 64], 2, 128>
          }
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 0
          sched.release @empty lag 0
          sched.load_metadata %metadata[%step plus 4] set 1 : !sched.ptr<"metadata", "u32">, i32
          sched.advance
          %4 = arith.constant 1 : i32
          %5 = arith.addi %step, %4 : i32
          sched.one_thread {
            sched.acquire @empty
            sched.expect @full rows %rows : i32
            %6 = arith.constant 32 : i32
            %7 = arith.muli %5, %6 : i32
            sched.bulk_load %a_map[%7, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 64], 2, 64>
            %8 = arith.constant 64 : i32
            %9 = arith.muli %5, %8 : i32
            sched.bulk_load %b_map[%9, %n : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [64, 64], 2, 128>, i32 : !sched.map<"b", [64, 64], 2, 128>
          }
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 1 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 1 selector 1
          sched.mma_commit
          sched.mma_wait pending 0
          sched.release @empty lag 0
          sched.advance
          %10 = arith.constant 2 : i32
          %11 = arith.addi %step, %10 : i32
          sched.one_thread {
            sched.acquire @empty
            sched.expect @full rows %rows : i32
            %12 = arith.constant 32 : i32
            %13 = arith.muli %11, %12 : i32
            sched.bulk_load %a_map[%13, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 64], 2, 64>
            %14 = arith.constant 64 : i32
            %15 = arith.muli %11, %14 : i32
            sched.bulk_load %b_map[%15, %n : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [64, 64], 2, 128>, i32 : !sched.map<"b", [64, 64], 2, 128>
          }
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 2 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 2 selector 1
          sched.mma_commit
          sched.mma_wait pending 0
          sched.release @empty lag 0
          sched.advance
          %16 = arith.constant 3 : i32
          %17 = arith.addi %step, %16 : i32
          sched.one_thread {
            sched.acquire @empty
            sched.expect @full rows %rows : i32
            %18 = arith.constant 32 : i32
            %19 = arith.muli %17, %18 : i32
            sched.bulk_load %a_map[%19, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 64], 2, 64>
            %20 = arith.constant 64 : i32
            %21 = arith.muli %17, %20 : i32
            sched.bulk_load %b_map[%21, %n : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [64, 64], 2, 128>, i32 : !sched.map<"b", [64, 64], 2, 128>
          }
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 3 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 3 selector 1
          sched.mma_commit
          sched.mma_wait pending 0
          sched.release @empty lag 0
          sched.advance
          %22 = arith.constant 4 : i32
          %23 = arith.addi %step, %22 : i32
          sched.one_thread {
            sched.acquire @empty
            sched.expect @full rows %rows : i32
            %24 = arith.constant 32 : i32
            %25 = arith.muli %23, %24 : i32
            sched.bulk_load %a_map[%25, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 64], 2, 64>
            %26 = arith.constant 64 : i32
            %27 = arith.muli %23, %26 : i32
            sched.bulk_load %b_map[%27, %n : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [64, 64], 2, 128>, i32 : !sched.map<"b", [64, 64], 2, 128>
          }
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 0
          sched.release @empty lag 0
          sched.load_metadata %metadata[%step plus 8] set 0 : !sched.ptr<"metadata", "u32">, i32
          sched.advance
          %28 = arith.constant 5 : i32
          %29 = arith.addi %step, %28 : i32
          sched.one_thread {
            sched.acquire @empty
            sched.expect @full rows %rows : i32
            %30 = arith.constant 32 : i32
            %31 = arith.muli %29, %30 : i32
            sched.bulk_load %a_map[%31, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 64], 2, 64>
            %32 = arith.constant 64 : i32
            %33 = arith.muli %29, %32 : i32
            sched.bulk_load %b_map[%33, %n : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [64, 64], 2, 128>, i32 : !sched.map<"b", [64, 64], 2, 128>
          }
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 1 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 1 selector 1
          sched.mma_commit
          sched.mma_wait pending 0
          sched.release @empty lag 0
          sched.advance
          %34 = arith.constant 6 : i32
          %35 = arith.addi %step, %34 : i32
          sched.one_thread {
            sched.acquire @empty
            sched.expect @full rows %rows : i32
            %36 = arith.constant 32 : i32
            %37 = arith.muli %35, %36 : i32
            sched.bulk_load %a_map[%37, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 64], 2, 64>
            %38 = arith.constant 64 : i32
            %39 = arith.muli %35, %38 : i32
            sched.bulk_load %b_map[%39, %n : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [64, 64], 2, 128>, i32 : !sched.map<"b", [64, 64], 2, 128>
          }
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 2 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 2 selector 1
          sched.mma_commit
          sched.mma_wait pending 0
          sched.release @empty lag 0
          sched.advance
          %40 = arith.constant 7 : i32
          %41 = arith.addi %step, %40 : i32
          sched.one_thread {
            sched.acquire @empty
            sched.expect @full rows %rows : i32
            %42 = arith.constant 32 : i32
            %43 = arith.muli %41, %42 : i32
            sched.bulk_load %a_map[%43, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 64], 2, 64>
            %44 = arith.constant 64 : i32
            %45 = arith.muli %41, %44 : i32
            sched.bulk_load %b_map[%45, %n : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [64, 64], 2, 128>, i32 : !sched.map<"b", [64, 64], 2, 128>
          }
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 3 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 3 selector 1
          sched.mma_commit
          sched.mma_wait pending 0
          sched.release @empty lag 0
          sched.advance
        }
        sched.loop partial unroll 7 {
        ^bb0(%step_1: i32):
          sched.one_thread {
            sched.acquire @empty
            sched.expect @full rows %rows : i32
            %46 = arith.constant 32 : i32
            %47 = arith.muli %step_1, %46 : i32
            sched.bulk_load %a_map[%47, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 64], 2, 64>
            %48 = arith.constant 64 : i32
            %49 = arith.muli %step_1, %48 : i32
            sched.bulk_load %b_map[%49, %n : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [64, 64], 2, 128>, i32 : !sched.map<"b", [64, 64], 2, 128>
          }
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 0
          sched.release @empty lag 0
          sched.load_metadata %metadata[%step_1 plus 4] set 1 : !sched.ptr<"metadata", "u32">, i32
          sched.advance
          %50 = arith.constant 1 : i32
          %51 = arith.addi %step_1, %50 : i32
          sched.one_thread {
            sched.acquire @empty
            sched.expect @full rows %rows : i32
            %52 = arith.constant 32 : i32
            %53 = arith.muli %51, %52 : i32
            sched.bulk_load %a_map[%53, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 64], 2, 64>
            %54 = arith.constant 64 : i32
            %55 = arith.muli %51, %54 : i32
            sched.bulk_load %b_map[%55, %n : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [64, 64], 2, 128>, i32 : !sched.map<"b", [64, 64], 2, 128>
          }
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 1 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 1 selector 1
          sched.mma_commit
          sched.mma_wait pending 0
          sched.release @empty lag 0
          sched.advance
          %56 = arith.constant 2 : i32
          %57 = arith.addi %step_1, %56 : i32
          sched.one_thread {
            sched.acquire @empty
            sched.expect @full rows %rows : i32
            %58 = arith.constant 32 : i32
            %59 = arith.muli %57, %58 : i32
            sched.bulk_load %a_map[%59, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 64], 2, 64>
            %60 = arith.constant 64 : i32
            %61 = arith.muli %57, %60 : i32
            sched.bulk_load %b_map[%61, %n : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [64, 64], 2, 128>, i32 : !sched.map<"b", [64, 64], 2, 128>
          }
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 2 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 2 selector 1
          sched.mma_commit
          sched.mma_wait pending 0
          sched.release @empty lag 0
          sched.advance
          %62 = arith.constant 3 : i32
          %63 = arith.addi %step_1, %62 : i32
          sched.one_thread {
            sched.acquire @empty
            sched.expect @full rows %rows : i32
            %64 = arith.constant 32 : i32
            %65 = arith.muli %63, %64 : i32
            sched.bulk_load %a_map[%65, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 64], 2, 64>
            %66 = arith.constant 64 : i32
            %67 = arith.muli %63, %66 : i32
            sched.bulk_load %b_map[%67, %n : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [64, 64], 2, 128>, i32 : !sched.map<"b", [64, 64], 2, 128>
          }
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 3 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 3 selector 1
          sched.mma_commit
          sched.mma_wait pending 0
          sched.release @empty lag 0
          sched.advance
          %68 = arith.constant 4 : i32
          %69 = arith.addi %step_1, %68 : i32
          sched.one_thread {
            sched.acquire @empty
            sched.expect @full rows %rows : i32
            %70 = arith.constant 32 : i32
            %71 = arith.muli %69, %70 : i32
            sched.bulk_load %a_map[%71, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 64], 2, 64>
            %72 = arith.constant 64 : i32
            %73 = arith.muli %69, %72 : i32
            sched.bulk_load %b_map[%73, %n : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [64, 64], 2, 128>, i32 : !sched.map<"b", [64, 64], 2, 128>
          }
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 0
          sched.release @empty lag 0
          sched.advance
          %74 = arith.constant 5 : i32
          %75 = arith.addi %step_1, %74 : i32
          sched.one_thread {
            sched.acquire @empty
            sched.expect @full rows %rows : i32
            %76 = arith.constant 32 : i32
            %77 = arith.muli %75, %76 : i32
            sched.bulk_load %a_map[%77, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 64], 2, 64>
            %78 = arith.constant 64 : i32
            %79 = arith.muli %75, %78 : i32
            sched.bulk_load %b_map[%79, %n : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [64, 64], 2, 128>, i32 : !sched.map<"b", [64, 64], 2, 128>
          }
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 1 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 1 selector 1
          sched.mma_commit
          sched.mma_wait pending 0
          sched.release @empty lag 0
          sched.advance
          %80 = arith.constant 6 : i32
          %81 = arith.addi %step_1, %80 : i32
          sched.one_thread {
            sched.acquire @empty
            sched.expect @full rows %rows : i32
            %82 = arith.constant 32 : i32
            %83 = arith.muli %81, %82 : i32
            sched.bulk_load %a_map[%83, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 64], 2, 64>
            %84 = arith.constant 64 : i32
            %85 = arith.muli %81, %84 : i32
            sched.bulk_load %b_map[%85, %n : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [64, 64], 2, 128>, i32 : !sched.map<"b", [64, 64], 2, 128>
          }
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 2 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 2 selector 1
          sched.mma_commit
          sched.mma_wait pending 0
          sched.release @empty lag 0
          sched.advance
        }
        sched.next_tile
        sched.store %d[%m, %n] transposed : !sched.ptr<"d", "f16">, i32, i32 {
        ^bb0(%86: f32):
          %87 = arith.truncf %86 : f32 to f16
          sched.yield %87 : f16
        }
      } ahead {
      ^bb0(%m_1: i32, %n_1: i32):
        %88 = arith.constant 0 : i32
        sched.load_metadata %metadata[%88 plus 0] set 0 : !sched.ptr<"metadata", "u32">, i32
      }
    }
  }
}
