builtin.module {
  tt.func public @matmul(%a: !tt.ptr<i8, #tt.sparse<"NV24">>, %b: !tt.ptr<ui8>, %d: !tt.ptr<f16>, %bias: !tt.ptr<i32>, %M: i32, %N: i32, %K: i32, %stride_a: i64, %stride_b: i64, %stride_d: i64) {
    %one = arith.constant 1 : i64
    %m_tile = tt.get_program_id x : i32
    %tile_m = arith.constant 128 : i32
    %m = arith.muli %m_tile, %tile_m : i32
    %n_tile = tt.get_program_id y : i32
    %tile_n = arith.constant 256 : i32
    %n = arith.muli %n_tile, %tile_n : i32
    %a_tensor = tt.make_tensor_descriptor %a, [%M, %K], [%stride_a, %one] : <i8, #tt.sparse<"NV24">>, <tensor<128x64xi8, #tt.sparse<"NV24">>>
    %b_tensor = tt.make_tensor_descriptor %b, [%N, %K], [%stride_b, %one] : <ui8>, <tensor<256x64xui8>>
    %zeros = arith.constant dense<0> : tensor<128x256xi32>
    %zero = arith.constant 0 : i32
    %tile_k = arith.constant 64 : i32
    %total = scf.for %k = %zero to %K step %tile_k iter_args(%partial = %zeros) -> (tensor<128x256xi32>) : i32 {
      %a_tile = tt.descriptor_load %a_tensor[%m, %k] : !tt.tensordesc<tensor<128x64xi8, #tt.sparse<"NV24">>> -> tensor<128x64xi8, #tt.sparse<"NV24">>
      %b_rows = tt.descriptor_load %b_tensor[%n, %k] : !tt.tensordesc<tensor<256x64xui8>> -> tensor<256x64xui8>
      %b_tile = tt.trans %b_rows {order = array<i32: 1, 0>} : tensor<256x64xui8> -> tensor<64x256xui8>
      %product = tt.dot %a_tile, %b_tile, %partial : tensor<128x64xi8, #tt.sparse<"NV24">> * tensor<64x256xui8> -> tensor<128x256xi32>
      scf.yield %product : tensor<128x256xi32>
    }
    %bias_tensor = tt.make_tensor_descriptor %bias, [%M], [%one] : <i32>, <tensor<128xi32>>
    %bias_tile = tt.descriptor_load %bias_tensor[%m] : !tt.tensordesc<tensor<128xi32>> -> tensor<128xi32>
    %bias_column = tt.expand_dims %bias_tile {axis = 1 : i32} : tensor<128xi32> -> tensor<128x1xi32>
    %bias_all = tt.broadcast %bias_column : tensor<128x1xi32> -> tensor<128x256xi32>
    %biased = arith.addi %total, %bias_all : tensor<128x256xi32>
    %result = arith.sitofp %biased : tensor<128x256xi32> to tensor<128x256xf16>
    %d_tensor = tt.make_tensor_descriptor %d, [%M, %N], [%stride_d, %one] : <f16>, <tensor<128x256xf16>>
    tt.descriptor_store %d_tensor[%m, %n], %result : !tt.tensordesc<tensor<128x256xf16>>, tensor<128x256xf16>
    tt.return
  }
}
