builtin.module {
  tt.func public @given_descriptors(%d_tiles: !tt.ptr<bf16>, %d_tiles.shape.0: i32 {louver.descriptor_size}, %d_tiles.shape.1: i32 {louver.descriptor_size}, %d_tiles.stride.0: i64, %d_tiles.stride.1: i64, %a_tiles: !tt.ptr<bf16, #tt.sparse<"NV24">>, %a_tiles.shape.0: i32 {louver.descriptor_size}, %a_tiles.shape.1: i32 {louver.descriptor_size}, %a_tiles.stride.0: i64, %a_tiles.stride.1: i64, %b_tiles: !tt.ptr<bf16>, %b_tiles.shape.0: i32 {louver.descriptor_size}, %b_tiles.shape.1: i32 {louver.descriptor_size}, %b_tiles.stride.0: i64, %b_tiles.stride.1: i64, %K: i32) attributes {noinline = false} {
    %d_tiles_tensor = tt.make_tensor_descriptor %d_tiles, [%d_tiles.shape.0, %d_tiles.shape.1], [%d_tiles.stride.0, 1] : <bf16>, <tensor<128x64xbf16>>
    %a_tiles_tensor = tt.make_tensor_descriptor %a_tiles, [%a_tiles.shape.0, %a_tiles.shape.1], [%a_tiles.stride.0, 1] : <bf16, #tt.sparse<"NV24">>, <tensor<128x32xbf16, #tt.sparse<"NV24">>>
    %b_tiles_tensor = tt.make_tensor_descriptor %b_tiles, [%b_tiles.shape.0, %b_tiles.shape.1], [%b_tiles.stride.0, 1] : <bf16>, <tensor<32x64xbf16>>
    %total = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c32_i32 = arith.constant 32 : i32
    %c0_i32 = arith.constant 0 : i32
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %row = tt.get_program_id x : i32
    %row_1 = arith.muli %row, %c128_i32 : i32
    %column = tt.get_program_id y : i32
    %column_1 = arith.muli %column, %c64_i32 : i32
    %total_1 = scf.for %k = %c0_i32 to %K step %c32_i32 iter_args(%total_2 = %total) -> (tensor<128x64xf32>) : i32 {
      %total_3 = tt.descriptor_load %a_tiles_tensor[%row_1, %k] : !tt.tensordesc<tensor<128x32xbf16, #tt.sparse<"NV24">>> -> tensor<128x32xbf16, #tt.sparse<"NV24">>
      %total_4 = tt.descriptor_load %b_tiles_tensor[%k, %column_1] : !tt.tensordesc<tensor<32x64xbf16>> -> tensor<32x64xbf16>
      %total_5 = tt.dot %total_3, %total_4, %total_2, inputPrecision = tf32 : tensor<128x32xbf16, #tt.sparse<"NV24">> * tensor<32x64xbf16> -> tensor<128x64xf32>
      scf.yield %total_5 : tensor<128x64xf32>
    }
    %0 = arith.truncf %total_1 : tensor<128x64xf32> to tensor<128x64xbf16>
    tt.descriptor_store %d_tiles_tensor[%row_1, %column_1], %0 : !tt.tensordesc<tensor<128x64xbf16>>, tensor<128x64xbf16>
    tt.return
  }
}
