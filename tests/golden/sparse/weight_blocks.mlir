builtin.module {
  tt.func public @weight_blocks(%y: !tt.ptr<f16>, %x: !tt.ptr<f16>, %w: !tt.ptr<f16, #tt.sparse<"NV24">>, %M: i32, %N: i32, %K: i32, %stride_x: i32, %stride_w: i32, %stride_y: i32) attributes {noinline = false} {
    %cst = arith.constant dense<0.000000e+00> : tensor<64x128xf32>
    %c0_i32 = arith.constant 0 : i32
    %c1_i64 = arith.constant 1 : i64
    %c128_i32 = arith.constant 128 : i32
    %c64_i32 = arith.constant 64 : i32
    %row = tt.get_program_id x : i32
    %row_1 = arith.muli %row, %c64_i32 : i32
    %column = tt.get_program_id y : i32
    %column_1 = arith.muli %column, %c128_i32 : i32
    %left = arith.extsi %M : i32 to i64
    %left_1 = arith.extsi %K : i32 to i64
    %left_2 = arith.extsi %stride_x : i32 to i64
    %left_3 = tt.make_tensor_ptr %x, [%left, %left_1], [%left_2, %c1_i64], [%row_1, %c0_i32] {order = array<i32: 1, 0>} : <tensor<64x64xf16>>
    %right = arith.extsi %N : i32 to i64
    %right_1 = arith.extsi %stride_w : i32 to i64
    %right_2 = tt.make_tensor_ptr %w, [%left_1, %right], [%c1_i64, %right_1], [%c0_i32, %column_1] {order = array<i32: 0, 1>} : <tensor<64x128xf16, #tt.sparse<"NV24">>>
    %total, %total_1, %total_2 = scf.for %_ = %c0_i32 to %K step %c64_i32 iter_args(%left_4 = %left_3, %right_3 = %right_2, %total_3 = %cst) -> (!tt.ptr<tensor<64x64xf16>>, !tt.ptr<tensor<64x128xf16, #tt.sparse<"NV24">>>, tensor<64x128xf32>) : i32 {
      %total_4 = tt.load %left_4 {boundaryCheck = array<i32: 0, 1>} : !tt.ptr<tensor<64x64xf16>>
      %total_5 = tt.load %right_3 {boundaryCheck = array<i32: 0, 1>} : !tt.ptr<tensor<64x128xf16, #tt.sparse<"NV24">>>
      %total_6 = tt.dot %total_4, %total_5, %cst, inputPrecision = tf32 : tensor<64x64xf16> * tensor<64x128xf16, #tt.sparse<"NV24">> -> tensor<64x128xf32>
      %total_7 = arith.addf %total_3, %total_6 : tensor<64x128xf32>
      %left_5 = tt.advance %left_4, [%c0_i32, %c64_i32] : <tensor<64x64xf16>>
      %right_4 = tt.advance %right_3, [%c64_i32, %c0_i32] : <tensor<64x128xf16, #tt.sparse<"NV24">>>
      scf.yield %left_5, %right_4, %total_7 : !tt.ptr<tensor<64x64xf16>>, !tt.ptr<tensor<64x128xf16, #tt.sparse<"NV24">>>, tensor<64x128xf32>
    }
    %out = arith.extsi %stride_y : i32 to i64
    %out_1 = tt.make_tensor_ptr %y, [%left, %right], [%out, %c1_i64], [%row_1, %column_1] {order = array<i32: 1, 0>} : <tensor<64x128xf16>>
    %0 = arith.truncf %total_2 : tensor<64x128xf32> to tensor<64x128xf16>
    tt.store %out_1, %0 {boundaryCheck = array<i32: 0, 1>} : !tt.ptr<tensor<64x128xf16>>
    tt.return
  }
}
