builtin.module {
  sched.kernel @matmul params ["a_map", "b_map", "b_tail", "metadata", "d", "bias", "M", "N", "K", "pitch", "raster"] threads 384 cluster 1 tile [128 : i32, 48 : i32, 128 : i32] mma <#builtin.int<48>, "s8", "u8", "s32", #builtin.int<1>, #builtin.int<0>> shared_bytes 71760 {
  ^bb0(%a_map: !sched.map<"a", [64, 128], 1, 64>, %b_map: !sched.map<"b", [128, 48], 1, 128>, %b_tail: !sched.map<"b", [128, 48], 1, 128>, %metadata: !sched.ptr<"metadata", "u32">, %d: !sched.ptr<"d", "s32">, %bias: !sched.ptr<"bias", "s32">, %M: !sched.size<"M", #builtin.int<32>>, %N: !sched.size<"N", #builtin.int<32>>, %K: !sched.size<"K", #builtin.int<32>>, %pitch: !sched.size<"pitch", #builtin.int<64>>, %raster: !sched.size<"raster", #builtin.int<32>>):
    sched.ring @a stages 5 bytes 8192 offset 0
    sched.ring @b stages 5 bytes 6144 offset 40960
    sched.barriers @full stages 5 arrivals 1 transaction_bytes 14336 offset 71680
    sched.barriers @empty stages 5 arrivals 8 offset 71720
    sched.role @producer warpgroups 1 from 0 registers 24 single {
      sched.tiles {
      ^bb0(%m: i32, %n: i32):
        %rows = sched.rows_left %N from %n most 48 : !sched.size<"N", #builtin.int<32>>, i32 -> i32
        sched.loop unroll 1 {
        ^bb0(%step: i32):
          sched.acquire @empty
          sched.expect @full rows %rows : i32
          %0 = arith.constant 64 : i32
          %1 = arith.muli %step, %0 : i32
          sched.bulk_load %a_map[%1, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [64, 128], 1, 64>
          %2 = arith.constant 128 : i32
          %3 = arith.muli %step, %2 : i32
          sched.bulk_load %b_map[%3, %n : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [128, 48], 1, 128>, i32 : !sched.map<"b", [128, 48], 1, 128>
          sched.advance
        }
      }
    }
    sched.role @consumer warpgroups 2 from 1 registers 240 {
      sched.tiles {
      ^bb0(%m_1: i32, %n_1: i32):
        sched.loop unroll 4 {
        ^bb0(%step_1: i32):
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 1 selector 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.load_metadata %metadata[%step_1 plus 2] set 1 : !sched.ptr<"metadata", "u32">, i32
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 2 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 3 selector 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 1 selector 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.load_metadata %metadata[%step_1 plus 4] set 0 : !sched.ptr<"metadata", "u32">, i32
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 2 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 3 selector 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
        }
        sched.loop partial unroll 3 {
        ^bb0(%step_2: i32):
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 1 selector 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.load_metadata %metadata[%step_2 plus 2] set 1 : !sched.ptr<"metadata", "u32">, i32
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 2 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 3 selector 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 1 selector 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
        }
        sched.mma_wait pending 0
        sched.release @empty lag 1
        sched.next_tile
        sched.store %d[%m_1, %n_1] : !sched.ptr<"d", "s32">, i32, i32 {
        ^bb0(%4: i32):
          %5 = sched.vector %bias along "m" : !sched.ptr<"bias", "s32"> -> i32
          %6 = arith.addi %4, %5 : i32
          sched.yield %6 : i32
        }
      } ahead {
      ^bb0(%m_2: i32, %n_2: i32):
        %7 = arith.constant 0 : i32
        sched.load_metadata %metadata[%7 plus 0] set 0 : !sched.ptr<"metadata", "u32">, i32
      }
    }
  }
}
