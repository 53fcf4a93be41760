builtin.module {
  tt.func public @whole_k(%a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %d: !tt.ptr<f16>, %M: i32, %K: i32, %stride_a: i32) attributes {noinline = false} {
    %d_tensor = tt.make_tensor_descriptor %d, [%M, 64], [64, 1] : <f16>, <tensor<128x64xf16>>
    %b_tensor = tt.make_tensor_descriptor %b, [%K, 64], [64, 1] : <f16>, <tensor<64x64xf16>>
    %0 = arith.extsi %stride_a : i32 to i64
    %a_tensor = tt.make_tensor_descriptor %a, [%M, %K], [%0, 1] : <f16, #tt.sparse<"NV24">>, <tensor<128x64xf16, #tt.sparse<"NV24">>>
    %cst = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c128_i32 = arith.constant 128 : i32
    %m = tt.get_program_id x : i32
    %m_1 = arith.muli %m, %c128_i32 : i32
    %1 = arith.constant 0 : i32
    %2 = arith.constant 0 : i32
    %3 = arith.constant 64 : i32
    %4 = scf.for %k = %2 to %3 step %3 iter_args(%partial = %cst) -> (tensor<128x64xf32>) : i32 {
      %left = tt.descriptor_load %a_tensor[%m_1, %k] : !tt.tensordesc<tensor<128x64xf16, #tt.sparse<"NV24">>> -> tensor<128x64xf16, #tt.sparse<"NV24">>
      %right = tt.descriptor_load %b_tensor[%k, %1] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
      %5 = tt.dot %left, %right, %partial, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      scf.yield %5 : tensor<128x64xf32>
    }
    %6 = arith.truncf %4 : tensor<128x64xf32> to tensor<128x64xf16>
    %7 = arith.constant 0 : i32
    tt.descriptor_store %d_tensor[%m_1, %7], %6 : !tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>
    tt.return
  }
}
