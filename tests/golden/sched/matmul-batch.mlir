builtin.module {
  sched.kernel @matmul params ["a_map", "b_map", "metadata", "d_map", "M", "N", "K", "batch", "raster"] threads 384 cluster 1 tile [128 : i32, 64 : i32, 64 : i32] mma <#builtin.int<64>, "f16", "f16", "f32", #builtin.int<1>, #builtin.int<1>> shared_bytes 81968 {
  ^bb0(%a_map: !sched.map<"a", [32, 128, 1], 2, 64>, %b_map: !sched.map<"b", [64, 64, 1], 2, 128>, %metadata: !sched.ptr<"metadata", "u32">, %d_map: !sched.map<"d", [32, 64, 1], 4, 128>, %M: !sched.size<"M", #builtin.int<32>>, %N: !sched.size<"N", #builtin.int<32>>, %K: !sched.size<"K", #builtin.int<32>>, %batch: !sched.size<"batch", #builtin.int<32>>, %raster: !sched.size<"raster", #builtin.int<32>>):
    sched.ring @a stages 3 bytes 8192 offset 0
    sched.ring @b stages 3 bytes 8192 offset 24576
    sched.ring @d stages 1 bytes 32768 offset 49152
    sched.barriers @full stages 3 arrivals 1 transaction_bytes 16384 offset 81920
    sched.barriers @empty stages 3 arrivals 8 offset 81944
    sched.role @producer warpgroups 1 from 0 registers 40 single {
      sched.tiles {
      ^bb0(%m: i32, %n: i32, %entry: i32):
        sched.loop unroll 1 {
        ^bb0(%step: i32):
          sched.acquire @empty
          sched.expect @full
          %0 = arith.constant 32 : i32
          %1 = arith.muli %step, %0 : i32
          sched.bulk_load %a_map[%1, %m, %entry : i32, i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 128, 1], 2, 64>
          %2 = arith.constant 64 : i32
          %3 = arith.muli %step, %2 : i32
          sched.bulk_load %b_map[%n, %3, %entry : i32, i32, i32] to @b offset 0 on @full : !sched.map<"b", [64, 64, 1], 2, 128>
          sched.advance
        }
      }
    }
    sched.role @consumer warpgroups 2 from 1 registers 232 {
      sched.tiles {
      ^bb0(%m_1: i32, %n_1: i32, %entry_1: i32):
        sched.loop unroll 8 {
        ^bb0(%step_1: i32):
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.load_metadata %metadata[%step_1 plus 4] set 1 : !sched.ptr<"metadata", "u32">, i32
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 1 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 1 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 2 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 2 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 3 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 3 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.load_metadata %metadata[%step_1 plus 8] set 0 : !sched.ptr<"metadata", "u32">, i32
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 1 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 1 word 1 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 2 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 1 word 2 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 3 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 1 word 3 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
        }
        sched.loop partial unroll 7 {
        ^bb0(%step_2: i32):
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.load_metadata %metadata[%step_2 plus 4] set 1 : !sched.ptr<"metadata", "u32">, i32
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 1 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 1 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 2 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 2 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 3 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 3 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 1 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 1 word 1 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 2 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 1 word 2 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
        }
        sched.mma_wait pending 0
        sched.release @empty lag 1
        sched.next_tile
        sched.bulk_store %d_map[%m_1, %n_1] entry %entry_1 : i32 as "f32" through @d columns 32 : !sched.map<"d", [32, 64, 1], 4, 128>, i32, i32 {
        ^bb0(%4: f32):
          sched.yield %4 : f32
        }
      } ahead {
      ^bb0(%m_2: i32, %n_2: i32, %entry_2: i32):
        %5 = arith.constant 0 : i32
        sched.load_metadata %metadata[%5 plus 0] set 0 : !sched.ptr<"metadata", "u32">, i32
      }
    }
  }
}
