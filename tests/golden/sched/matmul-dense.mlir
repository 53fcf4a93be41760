builtin.module {
  sched.kernel @matmul params ["a_map", "b_map", "d", "M", "N", "K", "pitch", "raster"] threads 384 cluster 1 tile [128 : i32, 64 : i32, 128 : i32] mma <#builtin.int<64>, "f16", "f16", "f32", #builtin.int<0>, #builtin.int<1>> shared_bytes 147504 {
  ^bb0(%a_map: !sched.map<"a", [64, 128], 2, 128>, %b_map: !sched.map<"b", [64, 128], 2, 128>, %d: !sched.ptr<"d", "f16">, %M: !sched.size<"M", #builtin.int<32>>, %N: !sched.size<"N", #builtin.int<32>>, %K: !sched.size<"K", #builtin.int<32>>, %pitch: !sched.size<"pitch", #builtin.int<64>>, %raster: !sched.size<"raster", #builtin.int<32>>):
    sched.ring @a stages 3 bytes 32768 offset 0
    sched.ring @b stages 3 bytes 16384 offset 98304
    sched.barriers @full stages 3 arrivals 1 transaction_bytes 49152 offset 147456
    sched.barriers @empty stages 3 arrivals 8 offset 147480
    sched.role @producer warpgroups 1 from 0 registers 24 single {
      sched.tiles {
      ^bb0(%m: i32, %n: i32):
        sched.loop unroll 1 {
        ^bb0(%step: i32):
          sched.acquire @empty
          sched.expect @full
          %0 = arith.constant 128 : i32
          %1 = arith.muli %step, %0 : i32
          sched.bulk_load %a_map[%1, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [64, 128], 2, 128>
          %2 = arith.constant 64 : i32
          %3 = arith.addi %1, %2 : i32
          sched.bulk_load %a_map[%3, %m : i32, i32] to @a offset 16384 on @full : !sched.map<"a", [64, 128], 2, 128>
          %4 = arith.constant 128 : i32
          %5 = arith.muli %step, %4 : i32
          sched.bulk_load %b_map[%n, %5 : i32, i32] to @b offset 0 on @full : !sched.map<"b", [64, 128], 2, 128>
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
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 2048 block 0
          sched.mma @a plus 64, @b plus 4096 block 0
          sched.mma @a plus 96, @b plus 6144 block 0
          sched.mma @a plus 16384, @b plus 8192 block 0
          sched.mma @a plus 16416, @b plus 10240 block 0
          sched.mma @a plus 16448, @b plus 12288 block 0
          sched.mma @a plus 16480, @b plus 14336 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 2048 block 0
          sched.mma @a plus 64, @b plus 4096 block 0
          sched.mma @a plus 96, @b plus 6144 block 0
          sched.mma @a plus 16384, @b plus 8192 block 0
          sched.mma @a plus 16416, @b plus 10240 block 0
          sched.mma @a plus 16448, @b plus 12288 block 0
          sched.mma @a plus 16480, @b plus 14336 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 2048 block 0
          sched.mma @a plus 64, @b plus 4096 block 0
          sched.mma @a plus 96, @b plus 6144 block 0
          sched.mma @a plus 16384, @b plus 8192 block 0
          sched.mma @a plus 16416, @b plus 10240 block 0
          sched.mma @a plus 16448, @b plus 12288 block 0
          sched.mma @a plus 16480, @b plus 14336 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 2048 block 0
          sched.mma @a plus 64, @b plus 4096 block 0
          sched.mma @a plus 96, @b plus 6144 block 0
          sched.mma @a plus 16384, @b plus 8192 block 0
          sched.mma @a plus 16416, @b plus 10240 block 0
          sched.mma @a plus 16448, @b plus 12288 block 0
          sched.mma @a plus 16480, @b plus 14336 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
        }
        sched.loop partial unroll 3 {
        ^bb0(%step_2: i32):
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 2048 block 0
          sched.mma @a plus 64, @b plus 4096 block 0
          sched.mma @a plus 96, @b plus 6144 block 0
          sched.mma @a plus 16384, @b plus 8192 block 0
          sched.mma @a plus 16416, @b plus 10240 block 0
          sched.mma @a plus 16448, @b plus 12288 block 0
          sched.mma @a plus 16480, @b plus 14336 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 2048 block 0
          sched.mma @a plus 64, @b plus 4096 block 0
          sched.mma @a plus 96, @b plus 6144 block 0
          sched.mma @a plus 16384, @b plus 8192 block 0
          sched.mma @a plus 16416, @b plus 10240 block 0
          sched.mma @a plus 16448, @b plus 12288 block 0
          sched.mma @a plus 16480, @b plus 14336 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0
          sched.mma @a plus 32, @b plus 2048 block 0
          sched.mma @a plus 64, @b plus 4096 block 0
          sched.mma @a plus 96, @b plus 6144 block 0
          sched.mma @a plus 16384, @b plus 8192 block 0
          sched.mma @a plus 16416, @b plus 10240 block 0
          sched.mma @a plus 16448, @b plus 12288 block 0
          sched.mma @a plus 16480, @b plus 14336 block 0
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
        }
        sched.mma_wait pending 0
        sched.release @empty lag 1
        sched.store %d[%m_1, %n_1] : !sched.ptr<"d", "f16">, i32, i32 {
        ^bb0(%6: f32):
          %7 = arith.truncf %6 : f32 to f16
          sched.yield %7 : f16
        }
      }
    }
  }
}
