builtin.module {
  tt.func public @unrolled_k(%a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %d: !tt.ptr<f16>, %M: i32, %N: i32, %stride_a: i32, %stride_b: i32, %stride_d: i32) attributes {noinline = false} {
    %0 = arith.extsi %stride_d : i32 to i64
    %d_tensor = tt.make_tensor_descriptor %d, [%M, %N], [%0, 1] : <f16>, <tensor<128x64xf16>>
    %1 = arith.extsi %stride_b : i32 to i64
    %b_tensor = tt.make_tensor_descriptor %b, [%N, 256], [%1, 1] : <f16>, <tensor<64x64xf16>>
    %2 = arith.extsi %stride_a : i32 to i64
    %a_tensor = tt.make_tensor_descriptor %a, [%M, 256], [%2, 1] : <f16, #tt.sparse<"NV24">>, <tensor<128x64xf16, #tt.sparse<"NV24">>>
    %total = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %rows = tt.get_program_id x : i32
    %rows_1 = arith.muli %rows, %c128_i32 : i32
    %columns = tt.get_program_id y : i32
    %columns_1 = arith.muli %columns, %c64_i32 : i32
    %3 = arith.constant 0 : i32
    %4 = arith.constant 64 : i32
    %5 = arith.constant 256 : i32
    %total_1 = scf.for %k = %3 to %5 step %4 iter_args(%partial = %total) -> (tensor<128x64xf32>) : i32 {
      %x = tt.descriptor_load %a_tensor[%rows_1, %k] : !tt.tensordesc<tensor<128x64xf16, #tt.sparse<"NV24">>> -> tensor<128x64xf16, #tt.sparse<"NV24">>
      %6 = tt.descriptor_load %b_tensor[%columns_1, %k] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
      %y = tt.trans %6 {order = array<i32: 1, 0>} : tensor<64x64xf16> -> tensor<64x64xf16>
      %total_2 = tt.dot %x, %y, %partial, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      scf.yield %total_2 : tensor<128x64xf32>
    }
    %7 = arith.truncf %total_1 : tensor<128x64xf32> to tensor<128x64xf16>
    tt.descriptor_store %d_tensor[%rows_1, %columns_1], %7 : !tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>
    tt.return
  }
}
