builtin.module {
  sched.kernel @matmul params ["a_map", "lists", "b_rows", "b_pitch", "metadata", "d", "M", "N", "K", "kept", "pitch", "raster"] threads 384 cluster 1 tile [128 : i32, 64 : i32, 64 : i32] mma <#builtin.int<64>, "bf16", "bf16", "f32", #builtin.int<1>, #builtin.int<1>> shared_bytes 52272 {
  ^bb0(%a_map: !sched.map<"a", [32, 128], 2, 64>, %lists: !sched.ptr<"lists", "s32">, %b_rows: !sched.ptr<"b_rows", "bf16">, %b_pitch: !sched.size<"b_pitch", #builtin.int<64>>, %metadata: !sched.ptr<"metadata", "u32">, %d: !sched.ptr<"d", "bf16">, %M: !sched.size<"M", #builtin.int<32>>, %N: !sched.size<"N", #builtin.int<32>>, %K: !sched.size<"K", #builtin.int<32>>, %kept: !sched.size<"kept", #builtin.int<32>>, %pitch: !sched.size<"pitch", #builtin.int<64>>, %raster: !sched.size<"raster", #builtin.int<32>>):
    sched.ring @a stages 3 bytes 8192 offset 0
    sched.ring @b stages 3 bytes 8192 offset 24576
    sched.ring @metadata stages 3 bytes 1024 offset 49152
    sched.barriers @full stages 3 arrivals 129 transaction_bytes 9216 offset 52224
    sched.barriers @empty stages 3 arrivals 8 offset 52248
    sched.role @producer warpgroups 1 from 0 registers 72 {
      sched.tiles {
      ^bb0(%m: i32, %n: i32):
        sched.loop again unroll 4 {
        ^bb0(%step: i32):
          sched.point_rows step %step plus 0 of set 0 : i32
          sched.load_rows step %step plus 4 to set 0 : i32
          sched.acquire @empty
          sched.one_thread {
            sched.expect @full
            sched.copy_metadata %metadata[%m, %step] to @metadata bytes 1024 on @full : !sched.ptr<"metadata", "u32">, i32, i32
            %0 = arith.constant 32 : i32
            %1 = arith.muli %step, %0 : i32
            sched.bulk_load %a_map[%1, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 128], 2, 64>
          }
          sched.gather count 1 to @b swizzle 128 on @full
          sched.advance
          sched.point_rows step %step plus 1 of set 1 : i32
          sched.load_rows step %step plus 5 to set 1 : i32
          sched.acquire @empty
          sched.one_thread {
            sched.expect @full
            %2 = arith.constant 1 : i32
            %3 = arith.addi %step, %2 : i32
            sched.copy_metadata %metadata[%m, %3] to @metadata bytes 1024 on @full : !sched.ptr<"metadata", "u32">, i32, i32
            %4 = arith.constant 32 : i32
            %5 = arith.muli %3, %4 : i32
            sched.bulk_load %a_map[%5, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 128], 2, 64>
          }
          sched.gather count 1 to @b swizzle 128 on @full
          sched.advance
          sched.point_rows step %step plus 2 of set 2 : i32
          sched.load_rows step %step plus 6 to set 2 : i32
          sched.acquire @empty
          sched.one_thread {
            sched.expect @full
            %6 = arith.constant 2 : i32
            %7 = arith.addi %step, %6 : i32
            sched.copy_metadata %metadata[%m, %7] to @metadata bytes 1024 on @full : !sched.ptr<"metadata", "u32">, i32, i32
            %8 = arith.constant 32 : i32
            %9 = arith.muli %7, %8 : i32
            sched.bulk_load %a_map[%9, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 128], 2, 64>
          }
          sched.gather count 1 to @b swizzle 128 on @full
          sched.advance
          sched.point_rows step %step plus 3 of set 3 : i32
          sched.load_rows step %step plus 7 to set 3 : i32
          sched.acquire @empty
          sched.one_thread {
            sched.expect @full
            %10 = arith.constant 3 : i32
            %11 = arith.addi %step, %10 : i32
            sched.copy_metadata %metadata[%m, %11] to @metadata bytes 1024 on @full : !sched.ptr<"metadata", "u32">, i32, i32
            %12 = arith.constant 32 : i32
            %13 = arith.muli %11, %12 : i32
            sched.bulk_load %a_map[%13, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 128], 2, 64>
          }
          sched.gather count 1 to @b swizzle 128 on @full
          sched.advance
        }
        sched.next_tile
      } ahead {
      ^bb0(%m_1: i32, %n_1: i32):
        %14 = arith.constant 0 : i32
        sched.open_rows %lists[%m_1] of %b_rows[%n_1] count 1 each 128 : !sched.ptr<"lists", "s32">, i32, !sched.ptr<"b_rows", "bf16">, i32
        sched.load_rows step %14 plus 0 to set 0 : i32
        sched.load_rows step %14 plus 1 to set 1 : i32
        sched.load_rows step %14 plus 2 to set 2 : i32
        sched.load_rows step %14 plus 3 to set 3 : i32
      }
    }
    sched.role @consumer warpgroups 2 from 1 registers 216 {
      sched.tiles {
      ^bb0(%m_2: i32, %n_2: i32):
        sched.loop unroll 8 {
        ^bb0(%step_1: i32):
          sched.wait @full
          sched.read_metadata @metadata set 0
          sched.proxy_fence
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 1
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 0
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 1
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 0
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 1
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 0
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 1
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
        }
        sched.loop partial unroll 7 {
        ^bb0(%step_2: i32):
          sched.wait @full
          sched.read_metadata @metadata set 0
          sched.proxy_fence
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 1
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 0
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 1
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 0
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 1
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 0
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
        }
        sched.mma_wait pending 0
        sched.release @empty lag 1
        sched.store %d[%m_2, %n_2] : !sched.ptr<"d", "bf16">, i32, i32 {
        ^bb0(%15: f32):
          %16 = arith.truncf %15 : f32 to bf16
          sched.yield %16 : bf16
        }
      }
    }
  }
}
