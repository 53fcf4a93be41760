builtin.module {
  tt.func public @expert_pointers(%x: !tt.ptr<f16>, %w: !tt.ptr<f16, #tt.sparse<"NV24">>, %y: !tt.ptr<f16>, %ids: !tt.ptr<i32>, %M: i32, %N: i32, %K: i32, %stride_x: i32, %stride_e: i32, %stride_w: i32, %stride_y: i32) attributes {noinline = false} {
    %0 = arith.extsi %stride_y : i32 to i64
    %y_tensor = tt.make_tensor_descriptor %y, [%M, %N], [%0, 1] : <f16>, <tensor<64x128xf16>>
    %1 = arith.extsi %stride_e : i32 to i64
    %2 = arith.extsi %stride_w : i32 to i64
    %w_tensor = tt.make_tensor_descriptor %w, [2147483647, %N, %K], [%1, %2, 1] : <f16, #tt.sparse<"NV24">>, <tensor<1x128x64xf16, #tt.sparse<"NV24">>>
    %3 = arith.extsi %stride_x : i32 to i64
    %x_tensor = tt.make_tensor_descriptor %x, [%M, %K], [%3, 1] : <f16>, <tensor<64x64xf16>>
    %c0_i32 = arith.constant 0 : i32
    %4 = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c128_i32 = arith.constant 128 : i32
    %c64_i32 = arith.constant 64 : i32
    %block = tt.get_program_id x : i32
    %expert = tt.addptr %ids, %block : !tt.ptr<i32>, i32
    %expert_1 = tt.load %expert : !tt.ptr<i32>
    %m = arith.muli %block, %c64_i32 : i32
    %n = tt.get_program_id y : i32
    %n_1 = arith.muli %n, %c128_i32 : i32
    %5 = arith.constant 64 : i32
    %total = scf.for %step = %c0_i32 to %K step %5 iter_args(%total_1 = %4) -> (tensor<128x64xf32>) : i32 {
      %tokens = tt.descriptor_load %x_tensor[%m, %step] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
      %6 = tt.descriptor_load %w_tensor[%expert_1, %n_1, %step] : !tt.tensordesc<tensor<1x128x64xf16, #tt.sparse<"NV24">>> -> tensor<1x128x64xf16, #tt.sparse<"NV24">>
      %7 = tt.reshape %6 : tensor<1x128x64xf16, #tt.sparse<"NV24">> -> tensor<128x64xf16, #tt.sparse<"NV24">>
      %8 = tt.trans %tokens {order = array<i32: 1, 0>} : tensor<64x64xf16> -> tensor<64x64xf16>
      %9 = tt.dot %7, %8, %total_1, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      scf.yield %9 : tensor<128x64xf32>
    }
    %total_2 = tt.trans %total {order = array<i32: 1, 0>} : tensor<128x64xf32> -> tensor<64x128xf32>
    %10 = arith.truncf %total_2 : tensor<64x128xf32> to tensor<64x128xf16>
    tt.descriptor_store %y_tensor[%m, %n_1], %10 : !tt.tensordesc<tensor<64x128xf16>>, tensor<64x128xf16>
    tt.return
  }
}
