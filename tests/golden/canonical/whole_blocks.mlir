builtin.module {
  tt.func public @whole_blocks(%d: !tt.ptr<f16>, %a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>) attributes {noinline = false} {
    %d_tensor = tt.make_tensor_descriptor %d, [128, 64], [64, 1] : <f16>, <tensor<128x64xf16>>
    %b_tensor = tt.make_tensor_descriptor %b, [64, 64], [64, 1] : <f16>, <tensor<64x64xf16>>
    %a_tensor = tt.make_tensor_descriptor %a, [128, 64], [64, 1] : <f16, #tt.sparse<"NV24">>, <tensor<128x64xf16, #tt.sparse<"NV24">>>
    %cst = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c0_i32 = arith.constant 0 : i32
    %0 = arith.constant 0 : i32
    %1 = arith.constant 64 : i32
    %2 = scf.for %k = %0 to %1 step %1 iter_args(%partial = %cst) -> (tensor<128x64xf32>) : i32 {
      %3 = tt.descriptor_load %a_tensor[%c0_i32, %k] : !tt.tensordesc<tensor<128x64xf16, #tt.sparse<"NV24">>> -> tensor<128x64xf16, #tt.sparse<"NV24">>
      %4 = tt.descriptor_load %b_tensor[%k, %c0_i32] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
      %5 = tt.dot %3, %4, %partial, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      scf.yield %5 : tensor<128x64xf32>
    }
    %6 = arith.truncf %2 : tensor<128x64xf32> to tensor<128x64xf16>
    tt.descriptor_store %d_tensor[%c0_i32, %c0_i32], %6 : !tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>
    tt.return
  }
}
