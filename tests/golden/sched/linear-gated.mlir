builtin.module {
  sched.kernel @linear params ["a_map", "b_map", "b_tail", "metadata", "d", "alpha", "scale", "dense_scale", "bias", "dense_bias", "scale_up", "bias_up", "out_scale", "M", "N", "K", "pitch", "raster"] threads 384 cluster 1 tile [128 : i32, 128 : i32, 64 : i32] mma <#builtin.int<128>, "f16", "f16", "f32", #builtin.int<1>, #builtin.int<0>> shared_bytes 73776 {
  ^bb0(%a_map: !sched.map<"a", [32, 128], 2, 64>, %b_map: !sched.map<"b", [64, 128], 2, 128>, %b_tail: !sched.map<"b", [64, 128], 2, 128>, %metadata: !sched.ptr<"metadata", "u32">, %d: !sched.ptr<"d", "f16">, %alpha: f32, %scale: !sched.ptr<"scale", "f32">, %dense_scale: !sched.ptr<"dense_scale", "f32">, %bias: !sched.ptr<"bias", "f16">, %dense_bias: !sched.ptr<"dense_bias", "bf16">, %scale_up: !sched.ptr<"scale_up", "f32">, %bias_up: !sched.ptr<"bias_up", "f16">, %out_scale: !sched.ptr<"out_scale", "f32">, %M: !sched.size<"M", #builtin.int<32>>, %N: !sched.size<"N", #builtin.int<32>>, %K: !sched.size<"K", #builtin.int<32>>, %pitch: !sched.size<"pitch", #builtin.int<64>>, %raster: !sched.size<"raster", #builtin.int<32>>):
    sched.ring @a stages 3 bytes 8192 offset 0
    sched.ring @b stages 3 bytes 16384 offset 24576
    sched.barriers @full stages 3 arrivals 1 transaction_bytes 24576 offset 73728
    sched.barriers @empty stages 3 arrivals 8 offset 73752
    sched.role @producer warpgroups 1 from 0 registers 24 single {
      sched.tiles {
      ^bb0(%m: i32, %n: i32):
        %rows = sched.rows_left %N from %n most 128 : !sched.size<"N", #builtin.int<32>>, i32 -> i32
        sched.loop unroll 1 {
        ^bb0(%step: i32):
          sched.acquire @empty
          sched.expect @full rows %rows : i32
          %0 = arith.constant 32 : i32
          %1 = arith.muli %step, %0 : i32
          sched.bulk_load %a_map[%1, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 128], 2, 64>
          %2 = arith.constant 64 : i32
          %3 = arith.muli %step, %2 : i32
          sched.bulk_load %b_map[%3, %n : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [64, 128], 2, 128>, i32 : !sched.map<"b", [64, 128], 2, 128>
          sched.advance
        }
      }
    }
    sched.role @consumer warpgroups 2 from 1 registers 240 {
      sched.tiles {
      ^bb0(%m_1: i32, %n_1: i32):
        sched.loop unroll 8 {
        ^bb0(%step_1: i32):
          sched.wait @full
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.load_metadata %metadata[%step_1 plus 4] set 1 : !sched.ptr<"metadata", "u32">, i32
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 1 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 1 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 2 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 2 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 3 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 3 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.load_metadata %metadata[%step_1 plus 8] set 0 : !sched.ptr<"metadata", "u32">, i32
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 1 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 1 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 2 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 2 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 3 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 3 selector 1
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
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.load_metadata %metadata[%step_2 plus 4] set 1 : !sched.ptr<"metadata", "u32">, i32
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 1 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 1 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 2 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 2 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 3 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 3 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 1 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 1 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 2 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 2 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
        }
        sched.mma_wait pending 0
        sched.release @empty lag 1
        sched.next_tile
        sched.store %d[%m_1, %n_1] transposed : !sched.ptr<"d", "f16">, i32, i32 {
        ^bb0(%4: f32, %5: f32):
          %6 = arith.mulf %4, %alpha : f32
          %7 = sched.vector %scale along "m" : !sched.ptr<"scale", "f32"> -> f32
          %8 = arith.mulf %6, %7 : f32
          %9 = sched.vector %dense_scale along "n" : !sched.ptr<"dense_scale", "f32"> -> f32
          %10 = arith.mulf %8, %9 : f32
          %11 = sched.vector %bias along "m" : !sched.ptr<"bias", "f16"> -> f16
          %12 = arith.extf %11 : f16 to f32
          %13 = arith.addf %10, %12 : f32
          %14 = sched.vector %dense_bias along "n" : !sched.ptr<"dense_bias", "bf16"> -> bf16
          %15 = arith.extf %14 : bf16 to f32
          %16 = arith.addf %13, %15 : f32
          %17 = arith.constant 5.000000e-01 : f32
          %18 = arith.mulf %16, %17 : f32
          %19 = arith.constant 0.707106769 : f32
          %20 = arith.mulf %16, %19 : f32
          %21 = math.erf %20 : f32
          %22 = arith.constant 1.000000e+00 : f32
          %23 = arith.addf %21, %22 : f32
          %24 = arith.mulf %18, %23 : f32
          %25 = arith.mulf %5, %alpha : f32
          %26 = sched.vector %scale_up along "m" : !sched.ptr<"scale_up", "f32"> -> f32
          %27 = arith.mulf %25, %26 : f32
          %28 = arith.mulf %27, %9 : f32
          %29 = sched.vector %bias_up along "m" : !sched.ptr<"bias_up", "f16"> -> f16
          %30 = arith.extf %29 : f16 to f32
          %31 = arith.addf %28, %30 : f32
          %32 = arith.addf %31, %15 : f32
          %33 = arith.mulf %24, %32 : f32
          %34 = sched.scalar %out_scale : !sched.ptr<"out_scale", "f32"> -> f32
          %35 = arith.mulf %33, %34 : f32
          %36 = arith.truncf %35 : f32 to f16
          sched.yield %36 : f16
        }
      } ahead {
      ^bb0(%m_2: i32, %n_2: i32):
        %37 = arith.constant 0 : i32
        sched.load_metadata %metadata[%37 plus 0] set 0 : !sched.ptr<"metadata", "u32">, i32
      }
    }
  }
}
