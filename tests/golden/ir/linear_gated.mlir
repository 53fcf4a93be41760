builtin.module {
  tt.func public @linear(%a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %d: !tt.ptr<f16>, %bias: !tt.ptr<f16>, %scale: !tt.ptr<f32>, %bias_up: !tt.ptr<f16>, %scale_up: !tt.ptr<f32>, %dense_scale: !tt.ptr<f32>, %dense_bias: !tt.ptr<bf16>, %out_scale: !tt.ptr<f32>, %alpha: f32, %M: i32, %N: i32, %K: i32, %stride_a: i64, %stride_b: i64, %stride_d: i64) {
    %one = arith.constant 1 : i64
    %m_tile = tt.get_program_id x : i32
    %tile_m = arith.constant 128 : i32
    %m = arith.muli %m_tile, %tile_m : i32
    %n_tile = tt.get_program_id y : i32
    %tile_n = arith.constant 256 : i32
    %n = arith.muli %n_tile, %tile_n : i32
    %a_tensor = tt.make_tensor_descriptor %a, [%M, %K], [%stride_a, %one] : <f16, #tt.sparse<"NV24">>, <tensor<128x64xf16, #tt.sparse<"NV24">>>
    %b_tensor = tt.make_tensor_descriptor %b, [%N, %K], [%stride_b, %one] : <f16>, <tensor<256x64xf16>>
    %zeros = arith.constant dense<0.000000e+00> : tensor<128x256xf32>
    %zero = arith.constant 0 : i32
    %tile_k = arith.constant 64 : i32
    %total = scf.for %k = %zero to %K step %tile_k iter_args(%partial = %zeros) -> (tensor<128x256xf32>) : i32 {
      %a_tile = tt.descriptor_load %a_tensor[%m, %k] : !tt.tensordesc<tensor<128x64xf16, #tt.sparse<"NV24">>> -> tensor<128x64xf16, #tt.sparse<"NV24">>
      %b_rows = tt.descriptor_load %b_tensor[%n, %k] : !tt.tensordesc<tensor<256x64xf16>> -> tensor<256x64xf16>
      %b_tile = tt.trans %b_rows {order = array<i32: 1, 0>} : tensor<256x64xf16> -> tensor<64x256xf16>
      %product = tt.dot %a_tile, %b_tile, %partial : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x256xf16> -> tensor<128x256xf32>
      scf.yield %product : tensor<128x256xf32>
    }
    %two = arith.constant 2 : i32
    %M_out = arith.divsi %M, %two : i32
    %tile_m_out = arith.constant 64 : i32
    %m_out = arith.muli %m_tile, %tile_m_out : i32
    %blocks = tt.reshape %total : tensor<128x256xf32> -> tensor<8x2x8x256xf32>
    %pairs = tt.trans %blocks {order = array<i32: 0, 2, 3, 1>} : tensor<8x2x8x256xf32> -> tensor<8x8x256x2xf32>
    %0, %1 = tt.split %pairs : tensor<8x8x256x2xf32> -> tensor<8x8x256xf32>
    %gate = tt.reshape %0 : tensor<8x8x256xf32> -> tensor<64x256xf32>
    %up = tt.reshape %1 : tensor<8x8x256xf32> -> tensor<64x256xf32>
    %alpha_all = tt.splat %alpha : f32 -> tensor<64x256xf32>
    %2 = arith.mulf %gate, %alpha_all : tensor<64x256xf32>
    %scale_tensor = tt.make_tensor_descriptor %scale, [%M_out], [%one] : <f32>, <tensor<64xf32>>
    %scale_tile = tt.descriptor_load %scale_tensor[%m_out] : !tt.tensordesc<tensor<64xf32>> -> tensor<64xf32>
    %scale_column = tt.expand_dims %scale_tile {axis = 1 : i32} : tensor<64xf32> -> tensor<64x1xf32>
    %scale_all = tt.broadcast %scale_column : tensor<64x1xf32> -> tensor<64x256xf32>
    %3 = arith.mulf %2, %scale_all : tensor<64x256xf32>
    %dense_scale_tensor = tt.make_tensor_descriptor %dense_scale, [%N], [%one] : <f32>, <tensor<256xf32>>
    %dense_scale_tile = tt.descriptor_load %dense_scale_tensor[%n] : !tt.tensordesc<tensor<256xf32>> -> tensor<256xf32>
    %dense_scale_row = tt.expand_dims %dense_scale_tile {axis = 0 : i32} : tensor<256xf32> -> tensor<1x256xf32>
    %dense_scale_all = tt.broadcast %dense_scale_row : tensor<1x256xf32> -> tensor<64x256xf32>
    %4 = arith.mulf %3, %dense_scale_all : tensor<64x256xf32>
    %bias_tensor = tt.make_tensor_descriptor %bias, [%M_out], [%one] : <f16>, <tensor<64xf16>>
    %bias_tile = tt.descriptor_load %bias_tensor[%m_out] : !tt.tensordesc<tensor<64xf16>> -> tensor<64xf16>
    %bias_wide = arith.extf %bias_tile : tensor<64xf16> to tensor<64xf32>
    %bias_column = tt.expand_dims %bias_wide {axis = 1 : i32} : tensor<64xf32> -> tensor<64x1xf32>
    %bias_all = tt.broadcast %bias_column : tensor<64x1xf32> -> tensor<64x256xf32>
    %biased = arith.addf %4, %bias_all : tensor<64x256xf32>
    %dense_bias_tensor = tt.make_tensor_descriptor %dense_bias, [%N], [%one] : <bf16>, <tensor<256xbf16>>
    %dense_bias_tile = tt.descriptor_load %dense_bias_tensor[%n] : !tt.tensordesc<tensor<256xbf16>> -> tensor<256xbf16>
    %dense_bias_wide = arith.extf %dense_bias_tile : tensor<256xbf16> to tensor<256xf32>
    %dense_bias_row = tt.expand_dims %dense_bias_wide {axis = 0 : i32} : tensor<256xf32> -> tensor<1x256xf32>
    %dense_bias_all = tt.broadcast %dense_bias_row : tensor<1x256xf32> -> tensor<64x256xf32>
    %5 = arith.addf %biased, %dense_bias_all : tensor<64x256xf32>
    %alpha_all_1 = tt.splat %alpha : f32 -> tensor<64x256xf32>
    %6 = arith.mulf %up, %alpha_all_1 : tensor<64x256xf32>
    %scale_up_tensor = tt.make_tensor_descriptor %scale_up, [%M_out], [%one] : <f32>, <tensor<64xf32>>
    %scale_up_tile = tt.descriptor_load %scale_up_tensor[%m_out] : !tt.tensordesc<tensor<64xf32>> -> tensor<64xf32>
    %scale_up_column = tt.expand_dims %scale_up_tile {axis = 1 : i32} : tensor<64xf32> -> tensor<64x1xf32>
    %scale_up_all = tt.broadcast %scale_up_column : tensor<64x1xf32> -> tensor<64x256xf32>
    %7 = arith.mulf %6, %scale_up_all : tensor<64x256xf32>
    %dense_scale_tensor_1 = tt.make_tensor_descriptor %dense_scale, [%N], [%one] : <f32>, <tensor<256xf32>>
    %dense_scale_tile_1 = tt.descriptor_load %dense_scale_tensor_1[%n] : !tt.tensordesc<tensor<256xf32>> -> tensor<256xf32>
    %dense_scale_row_1 = tt.expand_dims %dense_scale_tile_1 {axis = 0 : i32} : tensor<256xf32> -> tensor<1x256xf32>
    %dense_scale_all_1 = tt.broadcast %dense_scale_row_1 : tensor<1x256xf32> -> tensor<64x256xf32>
    %8 = arith.mulf %7, %dense_scale_all_1 : tensor<64x256xf32>
    %bias_up_tensor = tt.make_tensor_descriptor %bias_up, [%M_out], [%one] : <f16>, <tensor<64xf16>>
    %bias_up_tile = tt.descriptor_load %bias_up_tensor[%m_out] : !tt.tensordesc<tensor<64xf16>> -> tensor<64xf16>
    %bias_up_wide = arith.extf %bias_up_tile : tensor<64xf16> to tensor<64xf32>
    %bias_up_column = tt.expand_dims %bias_up_wide {axis = 1 : i32} : tensor<64xf32> -> tensor<64x1xf32>
    %bias_up_all = tt.broadcast %bias_up_column : tensor<64x1xf32> -> tensor<64x256xf32>
    %biased_1 = arith.addf %8, %bias_up_all : tensor<64x256xf32>
    %dense_bias_tensor_1 = tt.make_tensor_descriptor %dense_bias, [%N], [%one] : <bf16>, <tensor<256xbf16>>
    %dense_bias_tile_1 = tt.descriptor_load %dense_bias_tensor_1[%n] : !tt.tensordesc<tensor<256xbf16>> -> tensor<256xbf16>
    %dense_bias_wide_1 = arith.extf %dense_bias_tile_1 : tensor<256xbf16> to tensor<256xf32>
    %dense_bias_row_1 = tt.expand_dims %dense_bias_wide_1 {axis = 0 : i32} : tensor<256xf32> -> tensor<1x256xf32>
    %dense_bias_all_1 = tt.broadcast %dense_bias_row_1 : tensor<1x256xf32> -> tensor<64x256xf32>
    %9 = arith.addf %biased_1, %dense_bias_all_1 : tensor<64x256xf32>
    %10 = arith.constant dense<5.000000e-01> : tensor<64x256xf32>
    %11 = arith.mulf %5, %10 : tensor<64x256xf32>
    %12 = arith.constant dense<0.707106769> : tensor<64x256xf32>
    %13 = arith.mulf %5, %12 : tensor<64x256xf32>
    %14 = math.erf %13 : tensor<64x256xf32>
    %15 = arith.constant dense<1.000000e+00> : tensor<64x256xf32>
    %16 = arith.addf %14, %15 : tensor<64x256xf32>
    %17 = arith.mulf %11, %16 : tensor<64x256xf32>
    %gated = arith.mulf %17, %9 : tensor<64x256xf32>
    %out_scale_value = tt.load %out_scale : !tt.ptr<f32>
    %out_scale_all = tt.splat %out_scale_value : f32 -> tensor<64x256xf32>
    %18 = arith.mulf %gated, %out_scale_all : tensor<64x256xf32>
    %result = arith.truncf %18 : tensor<64x256xf32> to tensor<64x256xf16>
    %d_tensor = tt.make_tensor_descriptor %d, [%N, %M_out], [%stride_d, %one] : <f16>, <tensor<256x64xf16>>
    %transposed = tt.trans %result {order = array<i32: 1, 0>} : tensor<64x256xf16> -> tensor<256x64xf16>
    tt.descriptor_store %d_tensor[%n, %m_out], %transposed : !tt.tensordesc<tensor<256x64xf16>>, tensor<256x64xf16>
    tt.return
  }
}
