builtin.module {
  sched.kernel @matmul params ["a_map", "lists", "b_rows", "b_pitch", "b_batch_pitch", "d", "M", "N", "K", "kept", "pitch", "batch", "batch_pitch", "raster"] threads 384 cluster 1 tile [128 : i32, 128 : i32, 128 : i32] mma <#builtin.int<128>, "s8", "u8", "s32", #builtin.int<0>, #builtin.int<0>> shared_bytes 114736 {
  ^bb0(%a_map: !sched.map<"a", [128, 128, 1], 1, 128>, %lists: !sched.ptr<"lists", "s32">, %b_rows: !sched.ptr<"b_rows", "u8">, %b_pitch: !sched.size<"b_pitch", #builtin.int<64>>, %b_batch_pitch: !sched.size<"b_batch_pitch", #builtin.int<64>>, %d: !sched.ptr<"d", "s32">, %M: !sched.size<"M", #builtin.int<32>>, %N: !sched.size<"N", #builtin.int<32>>, %K: !sched.size<"K", #builtin.int<32>>, %kept: !sched.size<"kept", #builtin.int<32>>, %pitch: !sched.size<"pitch", #builtin.int<64>>, %batch: !sched.size<"batch", #builtin.int<32>>, %batch_pitch: !sched.size<"batch_pitch", #builtin.int<64>>, %raster: !sched.size<"raster", #builtin.int<32>>):
    sched.ring @a stages 3 bytes 16384 offset 0
    sched.ring @b stages 3 bytes 16384 offset 49152
    sched.ring @blocks stages 1 bytes 16384 offset 98304
    sched.barriers @full stages 3 arrivals 129 transaction_bytes 16384 offset 114688
    sched.barriers @empty stages 3 arrivals 8 offset 114712
    sched.role @producer warpgroups 1 from 0 registers 72 {
      sched.tiles {
      ^bb0(%m: i32, %n: i32, %entry: i32):
        sched.loop again unroll 1 {
        ^bb0(%step: i32):
          sched.point_rows step %step plus 1 of set 0 : i32
          sched.load_rows step %step plus 2 to set 0 : i32
          sched.acquire @empty
          sched.one_thread {
            sched.expect @full
            %0 = arith.constant 128 : i32
            %1 = arith.muli %step, %0 : i32
            sched.bulk_load %a_map[%1, %m, %entry : i32, i32, i32] to @a offset 0 on @full : !sched.map<"a", [128, 128, 1], 1, 128>
          }
          sched.turn part 0 of @blocks bytes 8192 count 1 to @b swizzle 128 on @full
          sched.copy_blocks part 0 of step %step plus 1 to @blocks : i32
          sched.turn part 1 last of @blocks bytes 8192 count 1 to @b swizzle 128 on @full
          sched.copy_blocks part 1 of step %step plus 1 to @blocks : i32
          sched.advance
        }
        sched.next_tile
      } ahead {
      ^bb0(%m_1: i32, %n_1: i32, %entry_1: i32):
        %2 = arith.constant 0 : i32
        sched.open_rows %lists[%m_1, entry %entry_1 : i32] of %b_rows[%n_1, entry %entry_1 : i32] count 1 each 128 : !sched.ptr<"lists", "s32">, i32, !sched.ptr<"b_rows", "u8">, i32
        sched.load_rows step %2 plus 0 to set 0 : i32
        sched.point_rows step %2 plus 0 of set 0 : i32
        sched.load_rows step %2 plus 1 to set 0 : i32
        sched.copy_blocks part 0 of step %2 plus 0 to @blocks : i32
        sched.copy_blocks part 1 of step %2 plus 0 to @blocks : i32
      }
    }
    sched.role @consumer warpgroups 2 from 1 registers 216 {
      sched.tiles {
      ^bb0(%m_2: i32, %n_2: i32, %entry_2: i32):
        sched.loop unroll 4 {
        ^bb0(%step_1: i32):
          sched.wait @full
          sched.proxy_fence
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 32 block 0
          sched.mma @a plus 64, @b plus 64 block 0
          sched.mma @a plus 96, @b plus 96 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 32 block 0
          sched.mma @a plus 64, @b plus 64 block 0
          sched.mma @a plus 96, @b plus 96 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 32 block 0
          sched.mma @a plus 64, @b plus 64 block 0
          sched.mma @a plus 96, @b plus 96 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 32 block 0
          sched.mma @a plus 64, @b plus 64 block 0
          sched.mma @a plus 96, @b plus 96 block 0
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
          sched.mma @a plus 32, @b plus 32 block 0
          sched.mma @a plus 64, @b plus 64 block 0
          sched.mma @a plus 96, @b plus 96 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 32 block 0
          sched.mma @a plus 64, @b plus 64 block 0
          sched.mma @a plus 96, @b plus 96 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.proxy_fence
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 32 block 0
          sched.mma @a plus 64, @b plus 64 block 0
          sched.mma @a plus 96, @b plus 96 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
        }
        sched.mma_wait pending 0
        sched.release @empty lag 1
        sched.store %d[%m_2, %n_2] entry %entry_2 : i32 : !sched.ptr<"d", "s32">, i32, i32 {
        ^bb0(%3: i32):
          sched.yield %3 : i32
        }
      }
    }
  }
}
