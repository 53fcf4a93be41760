builtin.module {
  tt.func public @split_rounds(%d: !tt.ptr<f32>, %a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %M: i32, %N: i32, %K: i32, %stride_a: i32, %stride_b: i32, %stride_d: i32) attributes {noinline = false, louver.split = [[1 : i64, "3", "", 1 : i64]]} {
    %m = tt.get_program_id x : i32
    %n = tt.get_program_id y : i32
    %0 = arith.extsi %stride_d : i32 to i64
    %d_tensor = tt.make_tensor_descriptor %d, [%M, %N], [%0, 1] : <f32>, <tensor<128x64xf32>>
    %1 = arith.extsi %stride_b : i32 to i64
    %b_tensor = tt.make_tensor_descriptor %b, [%K, %N], [%1, 1] : <f16>, <tensor<64x64xf16>>
    %2 = arith.extsi %stride_a : i32 to i64
    %a_tensor = tt.make_tensor_descriptor %a, [%M, %K], [%2, 1] : <f16, #tt.sparse<"NV24">>, <tensor<128x64xf16, #tt.sparse<"NV24">>>
    %cst = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %m_1 = arith.muli %m, %c128_i32 : i32
    %n_1 = arith.muli %n, %c64_i32 : i32
    %3 = arith.constant 0 : i32
    %4 = arith.constant 64 : i32
    %total = scf.for %arg9 = %3 to %K step %4 iter_args(%total_1 = %cst) -> (tensor<128x64xf32>) : i32 {
      %one = tt.descriptor_load %a_tensor[%m_1, %arg9] : !tt.tensordesc<tensor<128x64xf16, #tt.sparse<"NV24">>> -> tensor<128x64xf16, #tt.sparse<"NV24">>
      %two = tt.descriptor_load %b_tensor[%arg9, %n_1] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
      %total_2 = tt.dot %one, %two, %total_1, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      scf.yield %total_2 : tensor<128x64xf32>
    }
    tt.descriptor_reduce add, %d_tensor[%m_1, %n_1], %total : !tt.tensordesc<tensor<128x64xf32>>, tensor<128x64xf32>
    tt.return
  }
}
