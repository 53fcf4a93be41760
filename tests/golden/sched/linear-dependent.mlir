builtin.module {
  sched.kernel @linear params ["a_map", "b_map", "b_tail", "metadata", "d", "bias", "M", "N", "K", "pitch", "raster"] threads 384 cluster 1 resident 2 dependent tile [128 : i32, 16 : i32, 64 : i32] mma <#builtin.int<16>, "f16", "f16", "f32", #builtin.int<1>, #builtin.int<0>> shared_bytes 33840 {
  ^bb0(%a_map: !sched.map<"a", [32, 128], 2, 64>, %b_map: !sched.map<"b", [64, 16], 2, 128>, %b_tail: !sched.map<"b", [64, 16], 2, 128>, %metadata: !sched.ptr<"metadata", "u32">, %d: !sched.ptr<"d", "f16">, %bias: !sched.ptr<"bias", "f16">, %M: !sched.size<"M", #builtin.int<32>>, %N: !sched.size<"N", #builtin.int<32>>, %K: !sched.size<"K", #builtin.int<32>>, %pitch: !sched.size<"pitch", #builtin.int<64>>, %raster: !sched.size<"raster", #builtin.int<32>>):
    sched.ring @a stages 3 bytes 8192 offset 0
    sched.ring @b stages 3 bytes 2048 offset 24576
    sched.ring @metadata stages 3 bytes 1024 offset 30720
    sched.barriers @full stages 3 arrivals 2 transaction_bytes 11264 offset 33792
    sched.barriers @empty stages 3 arrivals 8 offset 33816
    sched.role @values warpgroups 1 from 0 registers 24 single {
      sched.tiles {
      ^bb0(%m: i32, %n: i32):
        sched.loop unroll 1 {
        ^bb0(%step: i32):
          sched.acquire @empty
          sched.expect @full
          sched.copy_metadata %metadata[%m, %step] to @metadata bytes 1024 on @full : !sched.ptr<"metadata", "u32">, i32, i32
          %0 = arith.constant 32 : i32
          %1 = arith.muli %step, %0 : i32
          sched.bulk_load %a_map[%1, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 128], 2, 64>
          sched.advance
        }
      }
    }
    sched.role @dense warpgroups 1 from 0 registers 24 single warp 1 {
      sched.wait_grids
      sched.tiles {
      ^bb0(%m_1: i32, %n_1: i32):
        %rows = sched.rows_left %N from %n_1 most 16 : !sched.size<"N", #builtin.int<32>>, i32 -> i32
        sched.loop unroll 1 {
        ^bb0(%step_1: i32):
          sched.acquire @empty
          sched.expect @full rows %rows : i32
          %2 = arith.constant 64 : i32
          %3 = arith.muli %step_1, %2 : i32
          sched.bulk_load %b_map[%3, %n_1 : i32, i32] to @b offset 0 on @full tail %b_tail rows %rows : !sched.map<"b", [64, 16], 2, 128>, i32 : !sched.map<"b", [64, 16], 2, 128>
          sched.advance
        }
      }
    }
    sched.role @consumer warpgroups 2 from 1 registers 104 {
      sched.tiles {
      ^bb0(%m_2: i32, %n_2: i32):
        sched.loop unroll 8 {
        ^bb0(%step_2: i32):
          sched.wait @full
          sched.read_metadata @metadata set 0
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 1
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 0
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 1
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 0
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 1
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 0
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 1
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
        }
        sched.loop partial unroll 7 {
        ^bb0(%step_3: i32):
          sched.wait @full
          sched.read_metadata @metadata set 0
          sched.mma_fence
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 1
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 0
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 1
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 0
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 1
          sched.mma @a plus 0, @b plus 0 block 0 metadata 1 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 1 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
          sched.wait @full
          sched.read_metadata @metadata set 0
          sched.mma @a plus 0, @b plus 0 block 0 metadata 0 word 0 selector 0
          sched.mma @a plus 32, @b plus 64 block 0 metadata 0 word 0 selector 1
          sched.mma_commit
          sched.mma_wait pending 1
          sched.release @empty lag 1
          sched.advance
        }
        sched.mma_wait pending 0
        sched.release @empty lag 1
        sched.store %d[%m_2, %n_2] transposed : !sched.ptr<"d", "f16">, i32, i32 {
        ^bb0(%4: f32):
          %5 = sched.vector %bias along "m" : !sched.ptr<"bias", "f16"> -> f16
          %6 = arith.extf %5 : f16 to f32
          %7 = arith.addf %4, %6 : f32
          %8 = arith.truncf %7 : f32 to f16
          sched.yield %8 : f16
        }
      }
    }
  }
}
