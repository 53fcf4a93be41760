builtin.module {
  tt.func public @indexed_pointers(%a: !tt.ptr<i8> {louver.sparse.NV24 = 1 : i32}, %b: !tt.ptr<i8>, %d: !tt.ptr<f16>, %bias: !tt.ptr<f32>, %scale: !tt.ptr<f32>, %M: i32, %N: i32, %K: i32, %stride_a: i64, %stride_b: i32, %stride_d: i64) attributes {noinline = false} {
    %cst = arith.constant dense<0> : tensor<256x64xi8>
    %cst_1 = arith.constant dense<0> : tensor<128x256xi8>
    %c256_i32 = arith.constant 256 : i32
    %c0_i32 = arith.constant 0 : i32
    %wide = arith.constant dense<1.000000e+02> : tensor<128x64xf32>
    %wide_1 = arith.constant dense<-1.000000e+02> : tensor<128x64xf32>
    %wide_2 = arith.constant dense<0.000000e+00> : tensor<128xf32>
    %cst_2 = arith.constant dense<0> : tensor<128x64xi32>
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %m = tt.get_program_id y : i32
    %m_1 = arith.muli %m, %c128_i32 : i32
    %m_2 = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32>
    %m_3 = tt.splat %m_1 : i32 -> tensor<128xi32>
    %m_4 = arith.addi %m_3, %m_2 : tensor<128xi32>
    %n = tt.get_program_id x : i32
    %n_1 = arith.muli %n, %c64_i32 : i32
    %n_2 = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %n_3 = tt.splat %n_1 : i32 -> tensor<64xi32>
    %n_4 = arith.addi %n_3, %n_2 : tensor<64xi32>
    %total = scf.for %first = %c0_i32 to %K step %c256_i32 iter_args(%total_1 = %cst_2) -> (tensor<128x64xi32>) : i32 {
      %k = tt.make_range {end = 256 : i32, start = 0 : i32} : tensor<256xi32>
      %k_1 = tt.splat %first : i32 -> tensor<256xi32>
      %k_2 = arith.addi %k_1, %k : tensor<256xi32>
      %left = tt.expand_dims %m_4 {axis = 1 : i32} : tensor<128xi32> -> tensor<128x1xi32>
      %left_1 = tt.splat %M : i32 -> tensor<128x1xi32>
      %left_2 = arith.cmpi slt, %left, %left_1 : tensor<128x1xi32>
      %left_3 = tt.expand_dims %k_2 {axis = 0 : i32} : tensor<256xi32> -> tensor<1x256xi32>
      %left_4 = tt.splat %K : i32 -> tensor<1x256xi32>
      %left_5 = arith.cmpi slt, %left_3, %left_4 : tensor<1x256xi32>
      %left_6 = tt.broadcast %left_2 : tensor<128x1xi1> -> tensor<128x256xi1>
      %left_7 = tt.broadcast %left_5 : tensor<1x256xi1> -> tensor<128x256xi1>
      %left_8 = arith.andi %left_6, %left_7 : tensor<128x256xi1>
      %left_9 = arith.extsi %left : tensor<128x1xi32> to tensor<128x1xi64>
      %left_10 = tt.splat %stride_a : i64 -> tensor<128x1xi64>
      %left_11 = arith.muli %left_9, %left_10 : tensor<128x1xi64>
      %left_12 = tt.splat %a : !tt.ptr<i8> -> tensor<128x1x!tt.ptr<i8>>
      %left_13 = tt.addptr %left_12, %left_11 : tensor<128x1x!tt.ptr<i8>>, tensor<128x1xi64>
      %left_14 = tt.broadcast %left_13 : tensor<128x1x!tt.ptr<i8>> -> tensor<128x256x!tt.ptr<i8>>
      %left_15 = tt.broadcast %left_3 : tensor<1x256xi32> -> tensor<128x256xi32>
      %left_16 = tt.addptr %left_14, %left_15 : tensor<128x256x!tt.ptr<i8>>, tensor<128x256xi32>
      %left_17 = tt.load %left_16, %left_8, %cst_1 : tensor<128x256x!tt.ptr<i8>>
      %right = tt.expand_dims %k_2 {axis = 1 : i32} : tensor<256xi32> -> tensor<256x1xi32>
      %right_1 = tt.splat %K : i32 -> tensor<256x1xi32>
      %right_2 = arith.cmpi slt, %right, %right_1 : tensor<256x1xi32>
      %right_3 = tt.expand_dims %n_4 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
      %right_4 = tt.splat %N : i32 -> tensor<1x64xi32>
      %right_5 = arith.cmpi slt, %right_3, %right_4 : tensor<1x64xi32>
      %right_6 = tt.broadcast %right_2 : tensor<256x1xi1> -> tensor<256x64xi1>
      %right_7 = tt.broadcast %right_5 : tensor<1x64xi1> -> tensor<256x64xi1>
      %right_8 = arith.andi %right_6, %right_7 : tensor<256x64xi1>
      %right_9 = tt.splat %stride_b : i32 -> tensor<1x64xi32>
      %right_10 = arith.muli %right_3, %right_9 : tensor<1x64xi32>
      %right_11 = tt.splat %b : !tt.ptr<i8> -> tensor<1x64x!tt.ptr<i8>>
      %right_12 = tt.addptr %right_11, %right_10 : tensor<1x64x!tt.ptr<i8>>, tensor<1x64xi32>
      %right_13 = tt.broadcast %right_12 : tensor<1x64x!tt.ptr<i8>> -> tensor<256x64x!tt.ptr<i8>>
      %right_14 = tt.broadcast %right : tensor<256x1xi32> -> tensor<256x64xi32>
      %right_15 = tt.addptr %right_13, %right_14 : tensor<256x64x!tt.ptr<i8>>, tensor<256x64xi32>
      %right_16 = tt.load %right_15, %right_8, %cst : tensor<256x64x!tt.ptr<i8>>
      %total_2 = tt.dot %left_17, %right_16, %cst_2, inputPrecision = tf32 : tensor<128x256xi8> * tensor<256x64xi8> -> tensor<128x64xi32>
      %total_3 = arith.addi %total_1, %total_2 : tensor<128x64xi32>
      scf.yield %total_3 : tensor<128x64xi32>
    } {tt.num_stages = 3 : i32}
    %wide_3 = arith.sitofp %total : tensor<128x64xi32> to tensor<128x64xf32>
    %wide_4 = tt.splat %M : i32 -> tensor<128xi32>
    %wide_5 = arith.cmpi slt, %m_4, %wide_4 : tensor<128xi32>
    %wide_6 = tt.splat %scale : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
    %wide_7 = tt.addptr %wide_6, %m_4 : tensor<128x!tt.ptr<f32>>, tensor<128xi32>
    %wide_8 = tt.load %wide_7, %wide_5, %wide_2 : tensor<128x!tt.ptr<f32>>
    %wide_9 = tt.expand_dims %wide_8 {axis = 1 : i32} : tensor<128xf32> -> tensor<128x1xf32>
    %wide_10 = tt.broadcast %wide_9 : tensor<128x1xf32> -> tensor<128x64xf32>
    %wide_11 = arith.mulf %wide_3, %wide_10 : tensor<128x64xf32>
    %wide_12 = tt.splat %N : i32 -> tensor<64xi32>
    %wide_13 = arith.cmpi slt, %n_4, %wide_12 : tensor<64xi32>
    %wide_14 = tt.splat %bias : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %wide_15 = tt.addptr %wide_14, %n_4 : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %wide_16 = tt.load %wide_15, %wide_13 : tensor<64x!tt.ptr<f32>>
    %wide_17 = tt.expand_dims %wide_16 {axis = 0 : i32} : tensor<64xf32> -> tensor<1x64xf32>
    %wide_18 = tt.broadcast %wide_17 : tensor<1x64xf32> -> tensor<128x64xf32>
    %wide_19 = arith.addf %wide_11, %wide_18 : tensor<128x64xf32>
    %wide_20 = tt.clampf %wide_19, %wide_1, %wide, propagateNan = none : tensor<128x64xf32>
    %0 = tt.expand_dims %n_4 {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %1 = tt.splat %N : i32 -> tensor<64x1xi32>
    %2 = arith.cmpi slt, %0, %1 : tensor<64x1xi32>
    %3 = tt.expand_dims %m_4 {axis = 0 : i32} : tensor<128xi32> -> tensor<1x128xi32>
    %4 = tt.splat %M : i32 -> tensor<1x128xi32>
    %5 = arith.cmpi slt, %3, %4 : tensor<1x128xi32>
    %6 = tt.broadcast %2 : tensor<64x1xi1> -> tensor<64x128xi1>
    %7 = tt.broadcast %5 : tensor<1x128xi1> -> tensor<64x128xi1>
    %8 = arith.andi %6, %7 : tensor<64x128xi1>
    %9 = tt.splat %d : !tt.ptr<f16> -> tensor<1x128x!tt.ptr<f16>>
    %10 = tt.addptr %9, %3 : tensor<1x128x!tt.ptr<f16>>, tensor<1x128xi32>
    %11 = arith.extsi %0 : tensor<64x1xi32> to tensor<64x1xi64>
    %12 = tt.splat %stride_d : i64 -> tensor<64x1xi64>
    %13 = arith.muli %11, %12 : tensor<64x1xi64>
    %14 = tt.broadcast %10 : tensor<1x128x!tt.ptr<f16>> -> tensor<64x128x!tt.ptr<f16>>
    %15 = tt.broadcast %13 : tensor<64x1xi64> -> tensor<64x128xi64>
    %16 = tt.addptr %14, %15 : tensor<64x128x!tt.ptr<f16>>, tensor<64x128xi64>
    %17 = tt.trans %wide_20 {order = array<i32: 1, 0>} : tensor<128x64xf32> -> tensor<64x128xf32>
    %18 = arith.truncf %17 : tensor<64x128xf32> to tensor<64x128xf16>
    tt.store %16, %18, %8 : tensor<64x128x!tt.ptr<f16>>
    tt.return
  }
}
