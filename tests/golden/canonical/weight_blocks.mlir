builtin.module {
  tt.func public @weight_blocks(%y: !tt.ptr<f16>, %x: !tt.ptr<f16>, %w: !tt.ptr<f16, #tt.sparse<"NV24">>, %M: i32, %N: i32, %K: i32, %stride_x: i32, %stride_w: i32, %stride_y: i32) attributes {noinline = false} {
    %0 = arith.extsi %stride_y : i32 to i64
    %y_tensor = tt.make_tensor_descriptor %y, [%M, %N], [%0, 1] : <f16>, <tensor<64x128xf16>>
    %1 = arith.extsi %stride_w : i32 to i64
    %w_tensor = tt.make_tensor_descriptor %w, [%N, %K], [%1, 1] : <f16, #tt.sparse<"NV24">>, <tensor<128x64xf16, #tt.sparse<"NV24">>>
    %2 = arith.extsi %stride_x : i32 to i64
    %x_tensor = tt.make_tensor_descriptor %x, [%M, %K], [%2, 1] : <f16>, <tensor<64x64xf16>>
    %3 = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c0_i32 = arith.constant 0 : i32
    %c128_i32 = arith.constant 128 : i32
    %c64_i32 = arith.constant 64 : i32
    %row = tt.get_program_id x : i32
    %row_1 = arith.muli %row, %c64_i32 : i32
    %column = tt.get_program_id y : i32
    %column_1 = arith.muli %column, %c128_i32 : i32
    %total = scf.for %_ = %c0_i32 to %K step %c64_i32 iter_args(%total_1 = %3) -> (tensor<128x64xf32>) : i32 {
      %total_2 = tt.descriptor_load %x_tensor[%row_1, %_] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
      %4 = tt.descriptor_load %w_tensor[%column_1, %_] : !tt.tensordesc<tensor<128x64xf16, #tt.sparse<"NV24">>> -> tensor<128x64xf16, #tt.sparse<"NV24">>
      %5 = tt.trans %total_2 {order = array<i32: 1, 0>} : tensor<64x64xf16> -> tensor<64x64xf16>
      %6 = tt.dot %4, %5, %total_1, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      scf.yield %6 : tensor<128x64xf32>
    }
    %total_3 = tt.trans %total {order = array<i32: 1, 0>} : tensor<128x64xf32> -> tensor<64x128xf32>
    %7 = arith.truncf %total_3 : tensor<64x128xf32> to tensor<64x128xf16>
    tt.descriptor_store %y_tensor[%row_1, %column_1], %7 : !tt.tensordesc<tensor<64x128xf16>>, tensor<64x128xf16>
    tt.return
  }
}
