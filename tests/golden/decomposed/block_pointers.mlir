builtin.module {
  tt.func public @block_pointers(%d: !tt.ptr<f16>, %a: !tt.ptr<f16>, %a_metadata: !tt.ptr<i16>, %b: !tt.ptr<f16>, %M: i32, %N: i32, %K: i32, %stride_a: i64, %stride_b: i32, %stride_d: i64) attributes {noinline = false} {
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
    %0 = arith.constant 3 : i64
    %1 = arith.addi %left_1, %0 : i64
    %2 = arith.constant 4 : i64
    %3 = arith.divui %1, %2 : i64
    %4 = arith.constant 2 : i64
    %5 = arith.muli %3, %4 : i64
    %6 = arith.constant 15 : i64
    %7 = arith.addi %left, %6 : i64
    %8 = arith.constant 16 : i64
    %9 = arith.divui %7, %8 : i64
    %10 = arith.constant 63 : i64
    %11 = arith.addi %left_1, %10 : i64
    %12 = arith.constant 64 : i64
    %13 = arith.divui %11, %12 : i64
    %14 = arith.constant 64 : i64
    %15 = arith.muli %13, %14 : i64
    %16 = arith.constant 2 : i64
    %17 = arith.divsi %stride_a, %16 : i64
    %18 = arith.constant 16 : i32
    %19 = arith.divsi %row_1, %18 : i32
    %left_2 = tt.make_tensor_ptr %a, [%left, %5], [%17, 1], [%row_1, 0] {order = array<i32: 1, 0>} : <tensor<128x32xf16>>
    %left_metadata = tt.make_tensor_ptr %a_metadata, [%9, %15], [%15, 1], [%19, %c0_i32] {order = array<i32: 1, 0>} : <tensor<8x64xi16>>
    %right = arith.extsi %N : i32 to i64
    %right_1 = arith.extsi %stride_b : i32 to i64
    %right_2 = tt.make_tensor_ptr %b, [%left_1, %right], [%c1_i64, %right_1], [%c0_i32, %column_1] {order = array<i32: 0, 1>} : <tensor<64x64xf16>>
    %total, %total_metadata, %total_1, %total_2 = scf.for %_ = %c0_i32 to %K step %c64_i32 iter_args(%left_3 = %left_2, %left_metadata_1 = %left_metadata, %right_3 = %right_2, %total_3 = %cst) -> (!tt.ptr<tensor<128x32xf16>>, !tt.ptr<tensor<8x64xi16>>, !tt.ptr<tensor<64x64xf16>>, tensor<128x64xf32>) : i32 {
      %x = tt.load %left_3 {boundaryCheck = array<i32: 0, 1>, padding = 1 : i32} : !tt.ptr<tensor<128x32xf16>>
      %x_metadata = tt.load %left_metadata_1 {boundaryCheck = array<i32: 0, 1>} : !tt.ptr<tensor<8x64xi16>>
      %y = tt.load %right_3 {boundaryCheck = array<i32: 0, 1>, padding = 1 : i32} : !tt.ptr<tensor<64x64xf16>>
      %total_4 = tt.dot %x, %y, %x_metadata, %cst, inputPrecision = tf32, sparseIndex = 0 : tensor<128x32xf16>, tensor<8x64xi16> * tensor<64x64xf16> -> tensor<128x64xf32>
      %total_5 = arith.addf %total_3, %total_4 : tensor<128x64xf32>
      %left_4 = tt.advance %left_3, [%c0_i32, 32] : <tensor<128x32xf16>>
      %left_metadata_2 = tt.advance %left_metadata_1, [0, %c64_i32] : <tensor<8x64xi16>>
      %right_4 = tt.advance %right_3, [%c64_i32, %c0_i32] : <tensor<64x64xf16>>
      scf.yield %left_4, %left_metadata_2, %right_4, %total_5 : !tt.ptr<tensor<128x32xf16>>, !tt.ptr<tensor<8x64xi16>>, !tt.ptr<tensor<64x64xf16>>, tensor<128x64xf32>
    }
    %out = tt.make_tensor_ptr %d, [%left, %right], [%stride_d, %c1_i64], [%row_1, %column_1] {order = array<i32: 1, 0>} : <tensor<128x64xf16>>
    %20 = arith.truncf %total_2 : tensor<128x64xf32> to tensor<128x64xf16>
    tt.store %out, %20 {boundaryCheck = array<i32: 0, 1>} : !tt.ptr<tensor<128x64xf16>>
    tt.return
  }
}
