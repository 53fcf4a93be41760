builtin.module {
  sched.kernel @matmul params ["a_map", "lists", "b_rows", "b_pitch", "d", "M", "N", "K", "kept", "pitch", "raster"] threads 384 cluster 1 tile [128 : i32, 64 : i32, 64 : i32] mma <#builtin.int<64>, "bf16", "bf16", "f32", #builtin.int<0>, #builtin.int<1>> shared_bytes 98352 {
  ^bb0(%a_map: !sched.map<"a", [64, 128], 2, 128>, %lists: !sched.ptr<"lists", "s32">, %b_rows: !sched.ptr<"b_rows", "bf16">, %b_pitch: !sched.size<"b_pitch", #builtin.int<64>>, %d: !sched.ptr<"d", "bf16">, %M: !sched.size<"M", #builtin.int<32>>, %N: !sched.size<"N", #builtin.int<32>>, %K: !sched.size<"K", #builtin.int<32>>, %kept: !sched.size<"kept", #builtin.int<32>>, %pitch: !sched.size<"pitch", #builtin.int<64>>, %raster: !sched.size<"raster", #builtin.int<32>>):
    sched.ring @a stages 3 bytes 16384 offset 0
    sched.ring @b stages 3 bytes 16384 offset 49152
    sched.barriers @full stages 3 arrivals 129 transaction_bytes 16384 offset 98304
    sched.barriers @empty stages 3 arrivals 8 offset 98328
    sched.role @producer warpgroups 1 from 0 registers 72 {
      sched.tiles {
      ^bb0(%m: i32, %n: i32):
        sched.loop again unroll 2 {
        ^bb0(%step: i32):
          sched.point_rows step %step plus 0 of set 0 : i32
          sched.load_rows step %step plus 2 to set 0 : i32
          sched.acquire @empty
          sched.one_thread {
            sched.expect @full
            %0 = arith.constant 64 : i32
            %1 = arith.muli %step, %0 : i32
            sched.bulk_load %a_map[%1, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [64, 128], 2, 128>
          }
          sched.gather count 2 to @b swizzle 128 on @full
          sched.advance
          sched.point_rows step %step plus 1 of set 1 : i32
          sched.load_rows step %step plus 3 to set 1 : i32
          sched.acquire @empty
          sched.one_thread {
            sched.expect @full
            %2 = arith.constant 1 : i32
            %3 = arith.addi %step, %2 : i32
            %4 = arith.constant 64 : i32
            %5 = arith.muli %3, %4 : i32
            sched.bulk_load %a_map[%5, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [64, 128], 2, 128>
          }
          sched.gather count 2 to @b swizzle 128 on @full
          sched.advance
        }
        sched.next_tile
      } ahead {
      ^bb0(%m_1: i32, %n_1: i32):
        %6 = arith.constant 0 : i32
        sched.open_rows %lists[%m_1] of %b_rows[%n_1] count 2 each 64 : !sched.ptr<"lists", "s32">, i32, !sched.ptr<"b_rows", "bf16">, i32
        sched.load_rows step %6 plus 0 to set 0 : i32
        sched.load_rows step %6 plus 1 to set 1 : i32
      }
    }
    sched.role @consumer warpgroups 2 from 1 registers 216 {
      sched.tiles {
      ^bb0(%m_2: i32, %n_2: i32):
        sched.loop unroll 4 {
        ^bb0(%step_1: i32):
          sched.wait @full
          sched.proxy_fence
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 2048 block 0
          sched.mma @a plus 64, @b plus 4096 block 0
          sched.mma @a plus 96, @b plus 6144 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 2048 block 0
          sched.mma @a plus 64, @b plus 4096 block 0
          sched.mma @a plus 96, @b plus 6144 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 2048 block 0
          sched.mma @a plus 64, @b plus 4096 block 0
          sched.mma @a plus 96, @b plus 6144 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 2048 block 0
          sched.mma @a plus 64, @b plus 4096 block 0
          sched.mma @a plus 96, @b plus 6144 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
        }
        sched.loop partial unroll 3 {
        ^bb0(%step_2: i32):
          sched.wait @full
          sched.proxy_fence
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 2048 block 0
          sched.mma @a plus 64, @b plus 4096 block 0
          sched.mma @a plus 96, @b plus 6144 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 2048 block 0
          sched.mma @a plus 64, @b plus 4096 block 0
          sched.mma @a plus 96, @b plus 6144 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 2048 block 0
          sched.mma @a plus 64, @b plus 4096 block 0
          sched.mma @a plus 96, @b plus 6144 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
        }
        sched.mma_wait pending 0
        sched.release @empty lag 1
        sched.store %d[%m_2, %n_2] : !sched.ptr<"d", "bf16">, i32, i32 {
        ^bb0(%7: f32):
          %8 = arith.truncf %7 : f32 to bf16
          sched.yield %8 : bf16
        }
      }
    }
  }
}
