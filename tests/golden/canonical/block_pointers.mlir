builtin.module {
  tt.func public @block_pointers(%d: !tt.ptr<f16>, %a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %M: i32, %N: i32, %K: i32, %stride_a: i64, %stride_b: i32, %stride_d: i64) attributes {noinline = false} {
    %d_tensor = tt.make_tensor_descriptor %d, [%M, %N], [%stride_d, 1] : <f16>, <tensor<128x64xf16>>
    %0 = arith.extsi %stride_b : i32 to i64
    %b_tensor = tt.make_tensor_descriptor %b, [%N, %K], [%0, 1] : <f16>, <tensor<64x64xf16>>
    %a_tensor = tt.make_tensor_descriptor %a, [%M, %K], [%stride_a, 1] : <f16, #tt.sparse<"NV24">>, <tensor<128x64xf16, #tt.sparse<"NV24">>>
    %cst = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c0_i32 = arith.constant 0 : i32
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %row = tt.get_program_id x : i32
    %row_1 = arith.muli %row, %c128_i32 : i32
    %column = tt.get_program_id y : i32
    %column_1 = arith.muli %column, %c64_i32 : i32
    %total = scf.for %_ = %c0_i32 to %K step %c64_i32 iter_args(%total_1 = %cst) -> (tensor<128x64xf32>) : i32 {
      %x = tt.descriptor_load %a_tensor[%row_1, %_] : !tt.tensordesc<tensor<128x64xf16, #tt.sparse<"NV24">>> -> tensor<128x64xf16, #tt.sparse<"NV24">>
      %1 = tt.descriptor_load %b_tensor[%column_1, %_] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
      %y = tt.trans %1 {order = array<i32: 1, 0>} : tensor<64x64xf16> -> tensor<64x64xf16>
      %total_2 = tt.dot %x, %y, %total_1, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      scf.yield %total_2 : tensor<128x64xf32>
    }
    %2 = arith.truncf %total : tensor<128x64xf32> to tensor<128x64xf16>
    tt.descriptor_store %d_tensor[%row_1, %column_1], %2 : !tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>
    tt.return
  }
}
