builtin.module {
  tt.func public @linear(%a: !tt.ptr<i8, #tt.sparse<"NV24">>, %b: !tt.ptr<i8>, %d: !tt.ptr<i8>, %bias: !tt.ptr<f32>, %scale: !tt.ptr<f32>, %dense_scale: !tt.ptr<f32>, %dense_bias: !tt.ptr<f16>, %c: !tt.ptr<bf16>, %out_scale: !tt.ptr<f32>, %alpha: f32, %beta: f32, %M: i32, %N: i32, %K: i32, %stride_a: i64, %stride_b: i64, %stride_d: i64, %stride_c: i64) {
    %one = arith.constant 1 : i64
    %m_tile = tt.get_program_id x : i32
    %tile_m = arith.constant 128 : i32
    %m = arith.muli %m_tile, %tile_m : i32
    %n_tile = tt.get_program_id y : i32
    %tile_n = arith.constant 256 : i32
    %n = arith.muli %n_tile, %tile_n : i32
    %a_tensor = tt.make_tensor_descriptor %a, [%M, %K], [%stride_a, %one] : <i8, #tt.sparse<"NV24">>, <tensor<128x64xi8, #tt.sparse<"NV24">>>
    %b_tensor = tt.make_tensor_descriptor %b, [%N, %K], [%stride_b, %one] : <i8>, <tensor<256x64xi8>>
    %zeros = arith.constant dense<0> : tensor<128x256xi32>
    %zero = arith.constant 0 : i32
    %tile_k = arith.constant 64 : i32
    %total = scf.for %k = %zero to %K step %tile_k iter_args(%partial = %zeros) -> (tensor<128x256xi32>) : i32 {
      %a_tile = tt.descriptor_load %a_tensor[%m, %k] : !tt.tensordesc<tensor<128x64xi8, #tt.sparse<"NV24">>> -> tensor<128x64xi8, #tt.sparse<"NV24">>
      %b_rows = tt.descriptor_load %b_tensor[%n, %k] : !tt.tensordesc<tensor<256x64xi8>> -> tensor<256x64xi8>
      %b_tile = tt.trans %b_rows {order = array<i32: 1, 0>} : tensor<256x64xi8> -> tensor<64x256xi8>
      %product = tt.dot %a_tile, %b_tile, %partial : tensor<128x64xi8, #tt.sparse<"NV24">> * tensor<64x256xi8> -> tensor<128x256xi32>
      scf.yield %product : tensor<128x256xi32>
    }
    %wide = arith.sitofp %total : tensor<128x256xi32> to tensor<128x256xf32>
    %alpha_all = tt.splat %alpha : f32 -> tensor<128x256xf32>
    %0 = arith.mulf %wide, %alpha_all : tensor<128x256xf32>
    %scale_tensor = tt.make_tensor_descriptor %scale, [%M], [%one] : <f32>, <tensor<128xf32>>
    %scale_tile = tt.descriptor_load %scale_tensor[%m] : !tt.tensordesc<tensor<128xf32>> -> tensor<128xf32>
    %scale_column = tt.expand_dims %scale_tile {axis = 1 : i32} : tensor<128xf32> -> tensor<128x1xf32>
    %scale_all = tt.broadcast %scale_column : tensor<128x1xf32> -> tensor<128x256xf32>
    %1 = arith.mulf %0, %scale_all : tensor<128x256xf32>
    %dense_scale_tensor = tt.make_tensor_descriptor %dense_scale, [%N], [%one] : <f32>, <tensor<256xf32>>
    %dense_scale_tile = tt.descriptor_load %dense_scale_tensor[%n] : !tt.tensordesc<tensor<256xf32>> -> tensor<256xf32>
    %dense_scale_row = tt.expand_dims %dense_scale_tile {axis = 0 : i32} : tensor<256xf32> -> tensor<1x256xf32>
    %dense_scale_all = tt.broadcast %dense_scale_row : tensor<1x256xf32> -> tensor<128x256xf32>
    %2 = arith.mulf %1, %dense_scale_all : tensor<128x256xf32>
    %bias_tensor = tt.make_tensor_descriptor %bias, [%M], [%one] : <f32>, <tensor<128xf32>>
    %bias_tile = tt.descriptor_load %bias_tensor[%m] : !tt.tensordesc<tensor<128xf32>> -> tensor<128xf32>
    %bias_column = tt.expand_dims %bias_tile {axis = 1 : i32} : tensor<128xf32> -> tensor<128x1xf32>
    %bias_all = tt.broadcast %bias_column : tensor<128x1xf32> -> tensor<128x256xf32>
    %biased = arith.addf %2, %bias_all : tensor<128x256xf32>
    %dense_bias_tensor = tt.make_tensor_descriptor %dense_bias, [%N], [%one] : <f16>, <tensor<256xf16>>
    %dense_bias_tile = tt.descriptor_load %dense_bias_tensor[%n] : !tt.tensordesc<tensor<256xf16>> -> tensor<256xf16>
    %dense_bias_wide = arith.extf %dense_bias_tile : tensor<256xf16> to tensor<256xf32>
    %dense_bias_row = tt.expand_dims %dense_bias_wide {axis = 0 : i32} : tensor<256xf32> -> tensor<1x256xf32>
    %dense_bias_all = tt.broadcast %dense_bias_row : tensor<1x256xf32> -> tensor<128x256xf32>
    %3 = arith.addf %biased, %dense_bias_all : tensor<128x256xf32>
    %c_tensor = tt.make_tensor_descriptor %c, [%N, %M], [%stride_c, %one] : <bf16>, <tensor<256x128xbf16>>
    %c_tile = tt.descriptor_load %c_tensor[%n, %m] : !tt.tensordesc<tensor<256x128xbf16>> -> tensor<256x128xbf16>
    %c_turned = tt.trans %c_tile {order = array<i32: 1, 0>} : tensor<256x128xbf16> -> tensor<128x256xbf16>
    %c_wide = arith.extf %c_turned : tensor<128x256xbf16> to tensor<128x256xf32>
    %beta_all = tt.splat %beta : f32 -> tensor<128x256xf32>
    %4 = arith.mulf %c_wide, %beta_all : tensor<128x256xf32>
    %5 = arith.addf %3, %4 : tensor<128x256xf32>
    %6 = arith.constant dense<5.000000e-01> : tensor<128x256xf32>
    %7 = arith.mulf %5, %6 : tensor<128x256xf32>
    %8 = arith.constant dense<0.707106769> : tensor<128x256xf32>
    %9 = arith.mulf %5, %8 : tensor<128x256xf32>
    %10 = math.erf %9 : tensor<128x256xf32>
    %11 = arith.constant dense<1.000000e+00> : tensor<128x256xf32>
    %12 = arith.addf %10, %11 : tensor<128x256xf32>
    %13 = arith.mulf %7, %12 : tensor<128x256xf32>
    %out_scale_value = tt.load %out_scale : !tt.ptr<f32>
    %out_scale_all = tt.splat %out_scale_value : f32 -> tensor<128x256xf32>
    %14 = arith.mulf %13, %out_scale_all : tensor<128x256xf32>
    %15 = arith.constant dense<-1.280000e+02> : tensor<128x256xf32>
    %16 = arith.maximumf %14, %15 : tensor<128x256xf32>
    %17 = arith.constant dense<1.270000e+02> : tensor<128x256xf32>
    %18 = arith.minimumf %16, %17 : tensor<128x256xf32>
    %rounded = math.roundeven %18 : tensor<128x256xf32>
    %result = arith.fptosi %rounded : tensor<128x256xf32> to tensor<128x256xi8>
    %d_tensor = tt.make_tensor_descriptor %d, [%N, %M], [%stride_d, %one] : <i8>, <tensor<256x128xi8>>
    %transposed = tt.trans %result {order = array<i32: 1, 0>} : tensor<128x256xi8> -> tensor<256x128xi8>
    tt.descriptor_store %d_tensor[%n, %m], %transposed : !tt.tensordesc<tensor<256x128xi8>>, tensor<256x128xi8>
    tt.return
  }
}
