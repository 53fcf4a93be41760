builtin.module {
  sched.kernel @matmul params ["a_map", "b_map", "metadata", "d", "M", "N", "K", "pitch", "raster"] threads 384 cluster 2 tile [128 : i32, 256 : i32, 128 : i32] mma <#builtin.int<256>, "bf16", "bf16", "f32", #builtin.int<1>, #builtin.int<1>> shared_bytes 163888 {
  ^bb0(%a_map: !sched.map<"a", [64, 128], 2, 128>, %b_map: !sched.map<"b", [64, 128], 2, 128>, %metadata: !sched.ptr<"metadata", "u32">, %d: !sched.ptr<"d", "f32">, %M: !sched.size<"M", #builtin.int<32>>, %N: !sched.size<"N", #builtin.int<32>>, %K: !sched.size<"K", #builtin.int<32>>, %pitch: !sched.size<"pitch", #builtin.int<64>>, %raster: !sched.size<"raster", #builtin.int<32>>):
    sched.ring @a stages 2 bytes 16384 offset 0
    sched.ring @b stages 2 bytes 65536 offset 32768
    sched.barriers @full stages 2 arrivals 1 transaction_bytes 81920 offset 163840
    sched.barriers @empty stages 2 arrivals 8 offset 163856
    sched.barriers @invited stages 2 arrivals 1 offset 163872
    sched.role @producer warpgroups 1 from 0 registers 24 single {
      sched.tiles {
      ^bb0(%m: i32, %n: i32):
        %0 = arith.constant 64 : i32
        %1 = arith.addi %n, %0 : i32
        sched.loop unroll 1 {
        ^bb0(%step: i32):
          sched.acquire @empty
          sched.expect @full
          sched.invite @invited
          %2 = arith.constant 64 : i32
          %3 = arith.muli %step, %2 : i32
          sched.bulk_load %a_map[%3, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [64, 128], 2, 128>
          sched.wait @invited
          %4 = arith.constant 128 : i32
          %5 = arith.muli %step, %4 : i32
          sched.bulk_load %b_map[%n, %5 : i32, i32] to @b offset 0 on @full multicast [0 : i32, 128 : i32, 32768 : i32] : !sched.map<"b", [64, 128], 2, 128>
          sched.bulk_load %b_map[%1, %5 : i32, i32] to @b offset 16384 on @full multicast [0 : i32, 128 : i32, 32768 : i32] : !sched.map<"b", [64, 128], 2, 128>
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
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 0 selector 1
          sched.mma @a plus 64, @b plus 8192 block 0 metadata 0 word 1 selector 0
          sched.mma @a plus 96, @b plus 12288 block 0 metadata 0 word 1 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.load_metadata %metadata[%step_1 plus 2] set 1 : !sched.ptr<"metadata", "u32">, i32
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 2 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 2 selector 1
          sched.mma @a plus 64, @b plus 8192 block 0 metadata 0 word 3 selector 0
          sched.mma @a plus 96, @b plus 12288 block 0 metadata 0 word 3 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 1 word 0 selector 1
          sched.mma @a plus 64, @b plus 8192 block 0 metadata 1 word 1 selector 0
          sched.mma @a plus 96, @b plus 12288 block 0 metadata 1 word 1 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.load_metadata %metadata[%step_1 plus 4] set 0 : !sched.ptr<"metadata", "u32">, i32
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 2 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 1 word 2 selector 1
          sched.mma @a plus 64, @b plus 8192 block 0 metadata 1 word 3 selector 0
          sched.mma @a plus 96, @b plus 12288 block 0 metadata 1 word 3 selector 1
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
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 0 selector 1
          sched.mma @a plus 64, @b plus 8192 block 0 metadata 0 word 1 selector 0
          sched.mma @a plus 96, @b plus 12288 block 0 metadata 0 word 1 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.load_metadata %metadata[%step_2 plus 2] set 1 : !sched.ptr<"metadata", "u32">, i32
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 2 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 0 word 2 selector 1
          sched.mma @a plus 64, @b plus 8192 block 0 metadata 0 word 3 selector 0
          sched.mma @a plus 96, @b plus 12288 block 0 metadata 0 word 3 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 4096 block 0 metadata 1 word 0 selector 1
          sched.mma @a plus 64, @b plus 8192 block 0 metadata 1 word 1 selector 0
          sched.mma @a plus 96, @b plus 12288 block 0 metadata 1 word 1 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
        }
        sched.mma_wait pending 0
        sched.release @empty lag 1
        sched.next_tile
        sched.store %d[%m_1, %n_1] : !sched.ptr<"d", "f32">, i32, i32 {
        ^bb0(%6: f32):
          sched.yield %6 : f32
        }
      } ahead {
      ^bb0(%m_2: i32, %n_2: i32):
        %7 = arith.constant 0 : i32
        sched.load_metadata %metadata[%7 plus 0] set 0 : !sched.ptr<"metadata", "u32">, i32
      }
    }
  }
}
