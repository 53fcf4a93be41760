builtin.module {
  tt.func public @unrolled_k(%a: !tt.ptr<f16> {louver.sparse.NV24 = 1 : i32}, %b: !tt.ptr<f16>, %d: !tt.ptr<f16>, %M: i32, %N: i32, %stride_a: i32, %stride_b: i32, %stride_d: i32) attributes {noinline = false} {
    %total = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %cst = arith.constant dense<0.000000e+00> : tensor<64x64xf16>
    %cst_1 = arith.constant dense<0.000000e+00> : tensor<128x64xf16>
    %ks = arith.constant dense<192> : tensor<64xi32>
    %ks_1 = arith.constant dense<128> : tensor<64xi32>
    %ks_2 = arith.constant dense<64> : tensor<64xi32>
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %rows = tt.get_program_id x : i32
    %rows_1 = arith.muli %rows, %c128_i32 : i32
    %rows_2 = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32>
    %rows_3 = tt.splat %rows_1 : i32 -> tensor<128xi32>
    %rows_4 = arith.addi %rows_3, %rows_2 : tensor<128xi32>
    %columns = tt.get_program_id y : i32
    %columns_1 = arith.muli %columns, %c64_i32 : i32
    %columns_2 = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %columns_3 = tt.splat %columns_1 : i32 -> tensor<64xi32>
    %columns_4 = arith.addi %columns_3, %columns_2 : tensor<64xi32>
    %x = tt.expand_dims %rows_4 {axis = 1 : i32} : tensor<128xi32> -> tensor<128x1xi32>
    %x_1 = tt.splat %M : i32 -> tensor<128x1xi32>
    %x_2 = arith.cmpi slt, %x, %x_1 : tensor<128x1xi32>
    %x_3 = tt.splat %stride_a : i32 -> tensor<128x1xi32>
    %x_4 = arith.muli %x, %x_3 : tensor<128x1xi32>
    %x_5 = tt.splat %a : !tt.ptr<f16> -> tensor<128x1x!tt.ptr<f16>>
    %x_6 = tt.addptr %x_5, %x_4 : tensor<128x1x!tt.ptr<f16>>, tensor<128x1xi32>
    %x_7 = tt.expand_dims %columns_2 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %x_8 = tt.broadcast %x_6 : tensor<128x1x!tt.ptr<f16>> -> tensor<128x64x!tt.ptr<f16>>
    %x_9 = tt.broadcast %x_7 : tensor<1x64xi32> -> tensor<128x64xi32>
    %x_10 = tt.addptr %x_8, %x_9 : tensor<128x64x!tt.ptr<f16>>, tensor<128x64xi32>
    %x_11 = tt.broadcast %x_2 : tensor<128x1xi1> -> tensor<128x64xi1>
    %x_12 = tt.load %x_10, %x_11, %cst_1 : tensor<128x64x!tt.ptr<f16>>
    %y = tt.expand_dims %columns_4 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %y_1 = tt.splat %N : i32 -> tensor<1x64xi32>
    %y_2 = arith.cmpi slt, %y, %y_1 : tensor<1x64xi32>
    %y_3 = tt.splat %stride_b : i32 -> tensor<1x64xi32>
    %y_4 = arith.muli %y, %y_3 : tensor<1x64xi32>
    %y_5 = tt.splat %b : !tt.ptr<f16> -> tensor<1x64x!tt.ptr<f16>>
    %y_6 = tt.addptr %y_5, %y_4 : tensor<1x64x!tt.ptr<f16>>, tensor<1x64xi32>
    %y_7 = tt.expand_dims %columns_2 {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %y_8 = tt.broadcast %y_6 : tensor<1x64x!tt.ptr<f16>> -> tensor<64x64x!tt.ptr<f16>>
    %y_9 = tt.broadcast %y_7 : tensor<64x1xi32> -> tensor<64x64xi32>
    %y_10 = tt.addptr %y_8, %y_9 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %y_11 = tt.broadcast %y_2 : tensor<1x64xi1> -> tensor<64x64xi1>
    %y_12 = tt.load %y_10, %y_11, %cst : tensor<64x64x!tt.ptr<f16>>
    %total_1 = tt.dot %x_12, %y_12, %total, inputPrecision = tf32 : tensor<128x64xf16> * tensor<64x64xf16> -> tensor<128x64xf32>
    %ks_3 = arith.addi %columns_2, %ks_2 : tensor<64xi32>
    %x_13 = tt.expand_dims %ks_3 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %x_14 = tt.broadcast %x_13 : tensor<1x64xi32> -> tensor<128x64xi32>
    %x_15 = tt.addptr %x_8, %x_14 : tensor<128x64x!tt.ptr<f16>>, tensor<128x64xi32>
    %x_16 = tt.load %x_15, %x_11, %cst_1 : tensor<128x64x!tt.ptr<f16>>
    %y_13 = tt.expand_dims %ks_3 {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %y_14 = tt.broadcast %y_13 : tensor<64x1xi32> -> tensor<64x64xi32>
    %y_15 = tt.addptr %y_8, %y_14 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %y_16 = tt.load %y_15, %y_11, %cst : tensor<64x64x!tt.ptr<f16>>
    %total_2 = tt.dot %x_16, %y_16, %total_1, inputPrecision = tf32 : tensor<128x64xf16> * tensor<64x64xf16> -> tensor<128x64xf32>
    %ks_4 = arith.addi %columns_2, %ks_1 : tensor<64xi32>
    %x_17 = tt.expand_dims %ks_4 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %x_18 = tt.broadcast %x_17 : tensor<1x64xi32> -> tensor<128x64xi32>
    %x_19 = tt.addptr %x_8, %x_18 : tensor<128x64x!tt.ptr<f16>>, tensor<128x64xi32>
    %x_20 = tt.load %x_19, %x_11, %cst_1 : tensor<128x64x!tt.ptr<f16>>
    %y_17 = tt.expand_dims %ks_4 {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %y_18 = tt.broadcast %y_17 : tensor<64x1xi32> -> tensor<64x64xi32>
    %y_19 = tt.addptr %y_8, %y_18 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %y_20 = tt.load %y_19, %y_11, %cst : tensor<64x64x!tt.ptr<f16>>
    %total_3 = tt.dot %x_20, %y_20, %total_2, inputPrecision = tf32 : tensor<128x64xf16> * tensor<64x64xf16> -> tensor<128x64xf32>
    %ks_5 = arith.addi %columns_2, %ks : tensor<64xi32>
    %x_21 = tt.expand_dims %ks_5 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %x_22 = tt.broadcast %x_21 : tensor<1x64xi32> -> tensor<128x64xi32>
    %x_23 = tt.addptr %x_8, %x_22 : tensor<128x64x!tt.ptr<f16>>, tensor<128x64xi32>
    %x_24 = tt.load %x_23, %x_11, %cst_1 : tensor<128x64x!tt.ptr<f16>>
    %y_21 = tt.expand_dims %ks_5 {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %y_22 = tt.broadcast %y_21 : tensor<64x1xi32> -> tensor<64x64xi32>
    %y_23 = tt.addptr %y_8, %y_22 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %y_24 = tt.load %y_23, %y_11, %cst : tensor<64x64x!tt.ptr<f16>>
    %total_4 = tt.dot %x_24, %y_24, %total_3, inputPrecision = tf32 : tensor<128x64xf16> * tensor<64x64xf16> -> tensor<128x64xf32>
    %inside = tt.broadcast %y_2 : tensor<1x64xi1> -> tensor<128x64xi1>
    %inside_1 = arith.andi %x_11, %inside : tensor<128x64xi1>
    %0 = tt.splat %stride_d : i32 -> tensor<128x1xi32>
    %1 = arith.muli %x, %0 : tensor<128x1xi32>
    %2 = tt.splat %d : !tt.ptr<f16> -> tensor<128x1x!tt.ptr<f16>>
    %3 = tt.addptr %2, %1 : tensor<128x1x!tt.ptr<f16>>, tensor<128x1xi32>
    %4 = tt.broadcast %3 : tensor<128x1x!tt.ptr<f16>> -> tensor<128x64x!tt.ptr<f16>>
    %5 = tt.broadcast %y : tensor<1x64xi32> -> tensor<128x64xi32>
    %6 = tt.addptr %4, %5 : tensor<128x64x!tt.ptr<f16>>, tensor<128x64xi32>
    %7 = arith.truncf %total_4 : tensor<128x64xf32> to tensor<128x64xf16>
    tt.store %6, %7, %inside_1 : tensor<128x64x!tt.ptr<f16>>
    tt.return
  }
}
