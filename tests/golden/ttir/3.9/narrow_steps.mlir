builtin.module {
  tt.func public @given_descriptors(%d_tiles: !tt.tensordesc<tensor<128x64xbf16>>, %d_tiles.shape.0: i32, %d_tiles.shape.1: i32, %d_tiles.stride.0: i64, %d_tiles.stride.1: i64, %a_tiles: !tt.tensordesc<tensor<128x32xbf16>> {louver.sparse.NV24 = 1 : i32}, %a_tiles.shape.0: i32, %a_tiles.shape.1: i32, %a_tiles.stride.0: i64, %a_tiles.stride.1: i64, %b_tiles: !tt.tensordesc<tensor<32x64xbf16>>, %b_tiles.shape.0: i32, %b_tiles.shape.1: i32, %b_tiles.stride.0: i64, %b_tiles.stride.1: i64, %K: i32) attributes {noinline = false} {
    %total = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c32_i32 = arith.constant 32 : i32
    %c0_i32 = arith.constant 0 : i32
    %column = arith.constant 64 : i32
    %row = arith.constant 128 : i32
    %row_1 = tt.get_program_id x : i32
    %row_2 = arith.muli %row_1, %row : i32
    %column_1 = tt.get_program_id y : i32
    %column_2 = arith.muli %column_1, %column : i32
    %total_1 = scf.for %k = %c0_i32 to %K step %c32_i32 iter_args(%total_2 = %total) -> (tensor<128x64xf32>) : i32 {
      %total_3 = tt.descriptor_load %a_tiles[%row_2, %k] : !tt.tensordesc<tensor<128x32xbf16>> -> tensor<128x32xbf16>
      %total_4 = tt.descriptor_load %b_tiles[%k, %column_2] : !tt.tensordesc<tensor<32x64xbf16>> -> tensor<32x64xbf16>
      %total_5 = tt.dot %total_3, %total_4, %total_2, inputPrecision = tf32 : tensor<128x32xbf16> * tensor<32x64xbf16> -> tensor<128x64xf32>
      scf.yield %total_5 : tensor<128x64xf32>
    }
    %0 = arith.truncf %total_1 : tensor<128x64xf32> to tensor<128x64xbf16>
    tt.descriptor_store %d_tiles[%row_2, %column_2], %0 : !tt.tensordesc<tensor<128x64xbf16>>, tensor<128x64xbf16>
    tt.return
  }
}
