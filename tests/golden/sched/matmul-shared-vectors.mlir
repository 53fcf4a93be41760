builtin.module {
  sched.kernel @matmul params ["a_map", "lists", "b_rows", "b_pitch", "metadata", "d", "M", "N", "K", "kept", "pitch"] threads 384 cluster 1 tile [128 : i32, 64 : i32, 64 : i32] mma <#builtin.int<64>, "bf16", "bf16", "f32", #builtin.int<1>, #builtin.int<1>> shared_bytes 52272 {
  ^bb0(%a_map: !sched.map<"a", [32, 128], 2, 64>, %lists: !sched.ptr<"lists", "s32">, %b_rows: !sched.ptr<"b_rows", "bf16">, %b_pitch: !sched.size<"b_pitch", #builtin.int<64>>, %metadata: !sched.ptr<"metadata", "u32">, %d: !sched.ptr<"d", "bf16">, %M: !sched.size<"M", #builtin.int<32>>, %N: !sched.size<"N", #builtin.int<32>>, %K: !sched.size<"K", #builtin.int<32>>, %kept: !sched.size<"kept", #builtin.int<32>>, %pitch: !sched.size<"pitch", #builtin.int<64>>):
    sched.ring @a stages 3 bytes 8192 offset 0
    sched.ring @b stages 3 bytes 8192 offset 24576
    sched.ring @metadata stages 3 bytes 1024 offset 49152
    sched.barriers @full stages 3 arrivals 129 transaction_bytes 9216 offset 52224
    sched.barriers @empty stages 3 arrivals 8 offset 52248
    sched.role @producer warpgroups 1 from 0 registers 40 {
      sched.tiles raster 16 {
      ^bb0(%m: i32, %n: i32):
        sched.loop unroll 1 {
        ^bb0(%step: i32):
          sched.acquire @empty
          sched.one_thread {
            sched.expect @full
            sched.copy_metadata %metadata[%m, %step] to @metadata bytes 1024 on @full : !sched.ptr<"metadata", "u32">, i32, i32
            %0 = arith.constant 32 : i32
            %1 = arith.muli %step, %0 : i32
            sched.bulk_load %a_map[%1, %m : i32, i32] to @a offset 0 on @full : !sched.map<"a", [32, 128], 2, 64>
          }
          sched.gather %b_rows[%n] count 1 to @b swizzle 128 on @full : !sched.ptr<"b_rows", "bf16">, i32
          sched.load_rows %lists[%m, %step plus 1] count 1 of 128 : !sched.ptr<"lists", "s32">, i32, i32
          sched.advance
        }
        sched.next_tile
      } ahead {
      ^bb0(%m_1: i32, %n_1: i32):
        %2 = arith.constant 0 : i32
        sched.load_rows %lists[%m_1, %2 plus 0] count 1 of 128 : !sched.ptr<"lists", "s32">, i32, i32
      }
    }
    sched.role @consumer warpgroups 2 from 1 registers 232 {
      sched.tiles raster 16 {
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
        ^bb0(%3: f32):
          %4 = arith.truncf %3 : f32 to bf16
          sched.yield %4 : bf16
        }
      }
    }
  }
}
