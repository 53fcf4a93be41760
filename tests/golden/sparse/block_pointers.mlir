builtin.module {
  tt.func public @block_pointers(%d: !tt.ptr<f16>, %a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %M: i32, %N: i32, %K: i32, %stride_a: i64, %stride_b: i32, %stride_d: i64) attributes {noinline = false} {
    %cst = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c0_i32 = arith.constant 0 : i32
    %c1_i64 = arith.constant 1 : i64
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %row = tt.get_program_id x : i32
    %row_1 = arith.muli %row, %c128_i32 : i32
    %column = tt.get_program_id y : i32
    %column_1 = arith.muli %column, %c64_i32 : i32
    %left = arith.extsi %M : i32 to i64
    %left_1 = arith.extsi %K : i32 to i64
    %left_2 = tt.make_tensor_ptr %a, [%left, %left_1], [%stride_a, %c1_i64], [%row_1, %c0_i32] {order = array<i32: 1, 0>} : <tensor<128x64xf16, #tt.sparse<"NV24">>>
    %right = arith.extsi %N : i32 to i64
    %right_1 = arith.extsi %stride_b : i32 to i64
    %right_2 = tt.make_tensor_ptr %b, [%left_1, %right], [%c1_i64, %right_1], [%c0_i32, %column_1] {order = array<i32: 0, 1>} : <tensor<64x64xf16>>
    %total, %total_1, %total_2 = scf.for %_ = %c0_i32 to %K step %c64_i32 iter_args(%left_3 = %left_2, %right_3 = %right_2, %total_3 = %cst) -> (!tt.ptr<tensor<128x64xf16, #tt.sparse<"NV24">>>, !tt.ptr<tensor<64x64xf16>>, tensor<128x64xf32>) : i32 {
      %x = tt.load %left_3 {boundaryCheck = array<i32: 0, 1>, padding = 1 : i32} : !tt.ptr<tensor<128x64xf16, #tt.sparse<"NV24">>>
      %y = tt.load %right_3 {boundaryCheck = array<i32: 0, 1>, padding = 1 : i32} : !tt.ptr<tensor<64x64xf16>>
      %total_4 = tt.dot %x, %y, %cst, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      %total_5 = arith.addf %total_3, %total_4 : tensor<128x64xf32>
      %left_4 = tt.advance %left_3, [%c0_i32, %c64_i32] : <tensor<128x64xf16, #tt.sparse<"NV24">>>
      %right_4 = tt.advance %right_3, [%c64_i32, %c0_i32] : <tensor<64x64xf16>>
      scf.yield %left_4, %right_4, %total_5 : !tt.ptr<tensor<128x64xf16, #tt.sparse<"NV24">>>, !tt.ptr<tensor<64x64xf16>>, tensor<128x64xf32>
    }
    %out = tt.make_tensor_ptr %d, [%left, %right], [%stride_d, %c1_i64], [%row_1, %column_1] {order = array<i32: 1, 0>} : <tensor<128x64xf16>>
    %0 = arith.truncf %total_2 : tensor<128x64xf32> to tensor<128x64xf16>
    tt.store %out, %0 {boundaryCheck = array<i32: 0, 1>} : !tt.ptr<tensor<128x64xf16>>
    tt.return
  }
}
