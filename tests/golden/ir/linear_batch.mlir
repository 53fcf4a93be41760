builtin.module {
  tt.func public @linear(%a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %d: !tt.ptr<f16>, %c: !tt.ptr<f16>, %beta: f32, %M: i32, %N: i32, %K: i32, %stride_a: i64, %stride_b: i64, %stride_d: i64, %stride_c: i64, %batch: i32, %batch_stride_a: i64, %batch_stride_b: i64, %batch_stride_d: i64, %batch_stride_c: i64) {
    %one = arith.constant 1 : i64
    %m_tile = tt.get_program_id x : i32
    %tile_m = arith.constant 128 : i32
    %m = arith.muli %m_tile, %tile_m : i32
    %n_tile = tt.get_program_id y : i32
    %tile_n = arith.constant 256 : i32
    %n = arith.muli %n_tile, %tile_n : i32
    %entry = tt.get_program_id z : i32
    %a_tensor = tt.make_tensor_descriptor %a, [%batch, %M, %K], [%batch_stride_a, %stride_a, %one] : <f16, #tt.sparse<"NV24">>, <tensor<1x128x64xf16, #tt.sparse<"NV24">>>
    %b_tensor = tt.make_tensor_descriptor %b, [%batch, %N, %K], [%batch_stride_b, %stride_b, %one] : <f16>, <tensor<1x256x64xf16>>
    %zeros = arith.constant dense<0.000000e+00> : tensor<128x256xf32>
    %zero = arith.constant 0 : i32
    %tile_k = arith.constant 64 : i32
    %total = scf.for %k = %zero to %K step %tile_k iter_args(%partial = %zeros) -> (tensor<128x256xf32>) : i32 {
      %a_tile_block = tt.descriptor_load %a_tensor[%entry, %m, %k] : !tt.tensordesc<tensor<1x128x64xf16, #tt.sparse<"NV24">>> -> tensor<1x128x64xf16, #tt.sparse<"NV24">>
      %a_tile = tt.reshape %a_tile_block : tensor<1x128x64xf16, #tt.sparse<"NV24">> -> tensor<128x64xf16, #tt.sparse<"NV24">>
      %b_rows_block = tt.descriptor_load %b_tensor[%entry, %n, %k] : !tt.tensordesc<tensor<1x256x64xf16>> -> tensor<1x256x64xf16>
      %b_rows = tt.reshape %b_rows_block : tensor<1x256x64xf16> -> tensor<256x64xf16>
      %b_tile = tt.trans %b_rows {order = array<i32: 1, 0>} : tensor<256x64xf16> -> tensor<64x256xf16>
      %product = tt.dot %a_tile, %b_tile, %partial : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x256xf16> -> tensor<128x256xf32>
      scf.yield %product : tensor<128x256xf32>
    }
    %c_tensor = tt.make_tensor_descriptor %c, [%batch, %N, %M], [%batch_stride_c, %stride_c, %one] : <f16>, <tensor<1x256x128xf16>>
    %c_tile_block = tt.descriptor_load %c_tensor[%entry, %n, %m] : !tt.tensordesc<tensor<1x256x128xf16>> -> tensor<1x256x128xf16>
    %c_tile = tt.reshape %c_tile_block : tensor<1x256x128xf16> -> tensor<256x128xf16>
    %c_turned = tt.trans %c_tile {order = array<i32: 1, 0>} : tensor<256x128xf16> -> tensor<128x256xf16>
    %c_wide = arith.extf %c_turned : tensor<128x256xf16> to tensor<128x256xf32>
    %beta_all = tt.splat %beta : f32 -> tensor<128x256xf32>
    %0 = arith.mulf %c_wide, %beta_all : tensor<128x256xf32>
    %1 = arith.addf %total, %0 : tensor<128x256xf32>
    %result = arith.truncf %1 : tensor<128x256xf32> to tensor<128x256xf16>
    %d_tensor = tt.make_tensor_descriptor %d, [%batch, %N, %M], [%batch_stride_d, %stride_d, %one] : <f16>, <tensor<1x256x128xf16>>
    %transposed = tt.trans %result {order = array<i32: 1, 0>} : tensor<128x256xf16> -> tensor<256x128xf16>
    %block = tt.reshape %transposed : tensor<256x128xf16> -> tensor<1x256x128xf16>
    tt.descriptor_store %d_tensor[%entry, %n, %m], %block : !tt.tensordesc<tensor<1x256x128xf16>>, tensor<1x256x128xf16>
    tt.return
  }
}
