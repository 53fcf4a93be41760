builtin.module {
  tt.func public @unmasked_pointers(%a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %d: !tt.ptr<f16>, %K: i32, %stride_a: i32, %stride_b: i32, %stride_d: i32) attributes {noinline = false} {
    %0 = tt.get_num_programs y : i32
    %1 = arith.constant 64 : i32
    %2 = arith.muli %0, %1 : i32
    %3 = tt.get_num_programs x : i32
    %4 = arith.constant 128 : i32
    %5 = arith.muli %3, %4 : i32
    %6 = arith.extsi %stride_d : i32 to i64
    %d_tensor = tt.make_tensor_descriptor %d, [%5, %2], [%6, 1] : <f16>, <tensor<128x64xf16>>
    %7 = arith.extsi %stride_b : i32 to i64
    %b_tensor = tt.make_tensor_descriptor %b, [%K, %2], [%7, 1] : <f16>, <tensor<64x64xf16>>
    %8 = arith.extsi %stride_a : i32 to i64
    %a_tensor = tt.make_tensor_descriptor %a, [%5, %K], [%8, 1] : <f16, #tt.sparse<"NV24">>, <tensor<128x64xf16, #tt.sparse<"NV24">>>
    %c0_i32 = arith.constant 0 : i32
    %cst = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %m = tt.get_program_id x : i32
    %m_1 = arith.muli %m, %c128_i32 : i32
    %n = tt.get_program_id y : i32
    %n_1 = arith.muli %n, %c64_i32 : i32
    %total = scf.for %_ = %c0_i32 to %K step %c64_i32 iter_args(%total_1 = %cst) -> (tensor<128x64xf32>) : i32 {
      %total_2 = tt.descriptor_load %a_tensor[%m_1, %_] : !tt.tensordesc<tensor<128x64xf16, #tt.sparse<"NV24">>> -> tensor<128x64xf16, #tt.sparse<"NV24">>
      %total_3 = tt.descriptor_load %b_tensor[%_, %n_1] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
      %total_4 = tt.dot %total_2, %total_3, %total_1, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      scf.yield %total_4 : tensor<128x64xf32>
    }
    %9 = arith.truncf %total : tensor<128x64xf32> to tensor<128x64xf16>
    tt.descriptor_store %d_tensor[%m_1, %n_1], %9 : !tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>
    tt.return
  }
}
