builtin.module {
  tt.func public @linear(%a: !tt.ptr<f8E4M3FN, #tt.sparse<"NV24">>, %b: !tt.ptr<f8E5M2>, %d: !tt.ptr<bf16>, %bias: !tt.ptr<bf16>, %M: i32, %N: i32, %K: i32, %stride_a: i64, %stride_b: i64, %stride_d: i64) {
    %one = arith.constant 1 : i64
    %m_tile = tt.get_program_id x : i32
    %tile_m = arith.constant 128 : i32
    %m = arith.muli %m_tile, %tile_m : i32
    %n_tile = tt.get_program_id y : i32
    %tile_n = arith.constant 256 : i32
    %n = arith.muli %n_tile, %tile_n : i32
    %a_tensor = tt.make_tensor_descriptor %a, [%M, %K], [%stride_a, %one] : <f8E4M3FN, #tt.sparse<"NV24">>, <tensor<128x64xf8E4M3FN, #tt.sparse<"NV24">>>
    %b_tensor = tt.make_tensor_descriptor %b, [%N, %K], [%stride_b, %one] : <f8E5M2>, <tensor<256x64xf8E5M2>>
    %zeros = arith.constant dense<0.000000e+00> : tensor<128x256xf32>
    %zero = arith.constant 0 : i32
    %tile_k = arith.constant 64 : i32
    %total = scf.for %k = %zero to %K step %tile_k iter_args(%partial = %zeros) -> (tensor<128x256xf32>) : i32 {
      %a_tile = tt.descriptor_load %a_tensor[%m, %k] : !tt.tensordesc<tensor<128x64xf8E4M3FN, #tt.sparse<"NV24">>> -> tensor<128x64xf8E4M3FN, #tt.sparse<"NV24">>
      %b_rows = tt.descriptor_load %b_tensor[%n, %k] : !tt.tensordesc<tensor<256x64xf8E5M2>> -> tensor<256x64xf8E5M2>
      %b_tile = tt.trans %b_rows {order = array<i32: 1, 0>} : tensor<256x64xf8E5M2> -> tensor<64x256xf8E5M2>
      %product = tt.dot %a_tile, %b_tile, %partial : tensor<128x64xf8E4M3FN, #tt.sparse<"NV24">> * tensor<64x256xf8E5M2> -> tensor<128x256xf32>
      scf.yield %product : tensor<128x256xf32>
    }
    %bias_tensor = tt.make_tensor_descriptor %bias, [%M], [%one] : <bf16>, <tensor<128xbf16>>
    %bias_tile = tt.descriptor_load %bias_tensor[%m] : !tt.tensordesc<tensor<128xbf16>> -> tensor<128xbf16>
    %bias_wide = arith.extf %bias_tile : tensor<128xbf16> to tensor<128xf32>
    %bias_column = tt.expand_dims %bias_wide {axis = 1 : i32} : tensor<128xf32> -> tensor<128x1xf32>
    %bias_all = tt.broadcast %bias_column : tensor<128x1xf32> -> tensor<128x256xf32>
    %biased = arith.addf %total, %bias_all : tensor<128x256xf32>
    %result = arith.truncf %biased : tensor<128x256xf32> to tensor<128x256xbf16>
    %d_tensor = tt.make_tensor_descriptor %d, [%N, %M], [%stride_d, %one] : <bf16>, <tensor<256x128xbf16>>
    %transposed = tt.trans %result {order = array<i32: 1, 0>} : tensor<128x256xbf16> -> tensor<256x128xbf16>
    tt.descriptor_store %d_tensor[%n, %m], %transposed : !tt.tensordesc<tensor<256x128xbf16>>, tensor<256x128xbf16>
    tt.return
  }
}
