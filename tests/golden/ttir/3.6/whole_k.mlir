builtin.module {
  tt.func public @whole_k(%a: !tt.ptr<f16> {louver.sparse.NV24 = 1 : i32}, %b: !tt.ptr<f16>, %d: !tt.ptr<f16>, %M: i32, %K: i32, %stride_a: i32) attributes {noinline = false} {
    %right = arith.constant dense<0.000000e+00> : tensor<64x64xf16>
    %left = arith.constant dense<0.000000e+00> : tensor<128x64xf16>
    %cst = arith.constant dense<64> : tensor<128x1xi32>
    %right_1 = arith.constant dense<64> : tensor<64x1xi32>
    %cst_1 = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c128_i32 = arith.constant 128 : i32
    %m = tt.get_program_id x : i32
    %m_1 = arith.muli %m, %c128_i32 : i32
    %m_2 = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32>
    %m_3 = tt.splat %m_1 : i32 -> tensor<128xi32>
    %m_4 = arith.addi %m_3, %m_2 : tensor<128xi32>
    %n = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %left_1 = tt.expand_dims %m_4 {axis = 1 : i32} : tensor<128xi32> -> tensor<128x1xi32>
    %left_2 = tt.splat %M : i32 -> tensor<128x1xi32>
    %left_3 = arith.cmpi slt, %left_1, %left_2 : tensor<128x1xi32>
    %left_4 = tt.expand_dims %n {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %left_5 = tt.splat %K : i32 -> tensor<1x64xi32>
    %left_6 = arith.cmpi slt, %left_4, %left_5 : tensor<1x64xi32>
    %left_7 = tt.broadcast %left_3 : tensor<128x1xi1> -> tensor<128x64xi1>
    %left_8 = tt.broadcast %left_6 : tensor<1x64xi1> -> tensor<128x64xi1>
    %left_9 = arith.andi %left_7, %left_8 : tensor<128x64xi1>
    %left_10 = tt.splat %stride_a : i32 -> tensor<128x1xi32>
    %left_11 = arith.muli %left_1, %left_10 : tensor<128x1xi32>
    %left_12 = tt.splat %a : !tt.ptr<f16> -> tensor<128x1x!tt.ptr<f16>>
    %left_13 = tt.addptr %left_12, %left_11 : tensor<128x1x!tt.ptr<f16>>, tensor<128x1xi32>
    %left_14 = tt.broadcast %left_13 : tensor<128x1x!tt.ptr<f16>> -> tensor<128x64x!tt.ptr<f16>>
    %left_15 = tt.broadcast %left_4 : tensor<1x64xi32> -> tensor<128x64xi32>
    %left_16 = tt.addptr %left_14, %left_15 : tensor<128x64x!tt.ptr<f16>>, tensor<128x64xi32>
    %left_17 = tt.load %left_16, %left_9, %left : tensor<128x64x!tt.ptr<f16>>
    %right_2 = tt.expand_dims %n {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %right_3 = tt.splat %K : i32 -> tensor<64x1xi32>
    %right_4 = arith.cmpi slt, %right_2, %right_3 : tensor<64x1xi32>
    %right_5 = arith.muli %right_2, %right_1 : tensor<64x1xi32>
    %right_6 = tt.splat %b : !tt.ptr<f16> -> tensor<64x1x!tt.ptr<f16>>
    %right_7 = tt.addptr %right_6, %right_5 : tensor<64x1x!tt.ptr<f16>>, tensor<64x1xi32>
    %right_8 = tt.broadcast %right_7 : tensor<64x1x!tt.ptr<f16>> -> tensor<64x64x!tt.ptr<f16>>
    %right_9 = tt.broadcast %left_4 : tensor<1x64xi32> -> tensor<64x64xi32>
    %right_10 = tt.addptr %right_8, %right_9 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %right_11 = tt.broadcast %right_4 : tensor<64x1xi1> -> tensor<64x64xi1>
    %right_12 = tt.load %right_10, %right_11, %right : tensor<64x64x!tt.ptr<f16>>
    %0 = arith.muli %left_1, %cst : tensor<128x1xi32>
    %1 = tt.splat %d : !tt.ptr<f16> -> tensor<128x1x!tt.ptr<f16>>
    %2 = tt.addptr %1, %0 : tensor<128x1x!tt.ptr<f16>>, tensor<128x1xi32>
    %3 = tt.broadcast %2 : tensor<128x1x!tt.ptr<f16>> -> tensor<128x64x!tt.ptr<f16>>
    %4 = tt.addptr %3, %left_15 : tensor<128x64x!tt.ptr<f16>>, tensor<128x64xi32>
    %5 = tt.dot %left_17, %right_12, %cst_1, inputPrecision = tf32 : tensor<128x64xf16> * tensor<64x64xf16> -> tensor<128x64xf32>
    %6 = arith.truncf %5 : tensor<128x64xf32> to tensor<128x64xf16>
    tt.store %4, %6, %left_7 : tensor<128x64x!tt.ptr<f16>>
    tt.return
  }
}
