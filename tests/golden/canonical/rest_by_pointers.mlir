builtin.module {
  tt.func public @rest_by_pointers(%a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %d: !tt.ptr<f16>, %M: i32, %N: i32, %K: i32, %stride_a: i32, %stride_b: i32, %stride_d: i32) attributes {noinline = false} {
    %0 = arith.extsi %stride_d : i32 to i64
    %d_tensor = tt.make_tensor_descriptor %d, [%M, %N], [%0, 1] : <f16>, <tensor<128x64xf16>>
    %1 = arith.extsi %stride_b : i32 to i64
    %b_tensor = tt.make_tensor_descriptor %b, [%K, %N], [%1, 1] : <f16>, <tensor<64x64xf16>>
    %2 = arith.extsi %stride_a : i32 to i64
    %a_tensor = tt.make_tensor_descriptor %a, [%M, %K], [%2, 1] : <f16, #tt.sparse<"NV24">>, <tensor<128x64xf16, #tt.sparse<"NV24">>>
    %total = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c1_i32 = arith.constant 1 : i32
    %c0_i32 = arith.constant 0 : i32
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %m = tt.get_program_id x : i32
    %m_1 = arith.muli %m, %c128_i32 : i32
    %n = tt.get_program_id y : i32
    %n_1 = arith.muli %n, %c64_i32 : i32
    %3 = arith.constant 63 : i32
    %4 = arith.addi %K, %3 : i32
    %5 = arith.constant 64 : i32
    %6 = arith.divsi %4, %5 : i32
    %7 = arith.constant 64 : i32
    %total_1 = scf.for %_ = %c0_i32 to %K step %7 iter_args(%total_2 = %total) -> (tensor<128x64xf32>) : i32 {
      %8 = arith.constant 64 : i32
      %total_3 = tt.descriptor_load %a_tensor[%m_1, %_] : !tt.tensordesc<tensor<128x64xf16, #tt.sparse<"NV24">>> -> tensor<128x64xf16, #tt.sparse<"NV24">>
      %9 = arith.constant 64 : i32
      %total_4 = tt.descriptor_load %b_tensor[%_, %n_1] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
      %total_5 = tt.dot %total_3, %total_4, %total_2, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      scf.yield %total_5 : tensor<128x64xf32>
    }
    %10 = arith.truncf %total_1 : tensor<128x64xf32> to tensor<128x64xf16>
    tt.descriptor_store %d_tensor[%m_1, %n_1], %10 : !tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>
    tt.return
  }
}
