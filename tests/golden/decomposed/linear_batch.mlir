builtin.module {
  tt.func public @linear(%a: !tt.ptr<f16>, %a_metadata: !tt.ptr<i16>, %b: !tt.ptr<f16>, %d: !tt.ptr<f16>, %c: !tt.ptr<f16>, %beta: f32, %M: i32, %N: i32, %K: i32, %stride_a: i64, %stride_b: i64, %stride_d: i64, %stride_c: i64, %batch: i32, %batch_stride_a: i64, %batch_stride_b: i64, %batch_stride_d: i64, %batch_stride_c: i64) {
    %one = arith.constant 1 : i64
    %m_tile = tt.get_program_id x : i32
    %tile_m = arith.constant 128 : i32
    %m = arith.muli %m_tile, %tile_m : i32
    %n_tile = tt.get_program_id y : i32
    %tile_n = arith.constant 256 : i32
    %n = arith.muli %n_tile, %tile_n : i32
    %entry = tt.get_program_id z : i32
    %0 = arith.constant 3 : i32
    %1 = arith.addi %K, %0 : i32
    %2 = arith.constant 4 : i32
    %3 = arith.divui %1, %2 : i32
    %4 = arith.constant 2 : i32
    %5 = arith.muli %3, %4 : i32
    %6 = arith.constant 15 : i32
    %7 = arith.addi %M, %6 : i32
    %8 = arith.constant 16 : i32
    %9 = arith.divui %7, %8 : i32
    %10 = arith.constant 63 : i32
    %11 = arith.addi %K, %10 : i32
    %12 = arith.constant 64 : i32
    %13 = arith.divui %11, %12 : i32
    %14 = arith.constant 64 : i32
    %15 = arith.muli %13, %14 : i32
    %16 = arith.constant 2 : i64
    %17 = arith.divsi %batch_stride_a, %16 : i64
    %18 = arith.constant 2 : i64
    %19 = arith.divsi %stride_a, %18 : i64
    %20 = arith.extsi %15 : i32 to i64
    %21 = arith.extsi %9 : i32 to i64
    %22 = arith.muli %20, %21 : i64
    %a_tensor = tt.make_tensor_descriptor %a, [%batch, %M, %5], [%17, %19, 1] : <f16>, <tensor<1x128x32xf16>>
    %a_tensor_metadata = tt.make_tensor_descriptor %a_metadata, [%batch, %9, %15], [%22, %20, 1] : <i16>, <tensor<1x8x64xi16>>
    %b_tensor = tt.make_tensor_descriptor %b, [%batch, %N, %K], [%batch_stride_b, %stride_b, %one] : <f16>, <tensor<1x256x64xf16>>
    %zeros = arith.constant dense<0.000000e+00> : tensor<128x256xf32>
    %zero = arith.constant 0 : i32
    %tile_k = arith.constant 64 : i32
    %total = scf.for %k = %zero to %K step %tile_k iter_args(%partial = %zeros) -> (tensor<128x256xf32>) : i32 {
      %23 = arith.constant 2 : i32
      %24 = arith.divsi %k, %23 : i32
      %25 = arith.constant 16 : i32
      %26 = arith.divsi %m, %25 : i32
      %a_tile_block = tt.descriptor_load %a_tensor[%entry, %m, %24] : !tt.tensordesc<tensor<1x128x32xf16>> -> tensor<1x128x32xf16>
      %a_tile_block_metadata = tt.descriptor_load %a_tensor_metadata[%entry, %26, %k] : !tt.tensordesc<tensor<1x8x64xi16>> -> tensor<1x8x64xi16>
      %a_tile = tt.reshape %a_tile_block : tensor<1x128x32xf16> -> tensor<128x32xf16>
      %a_tile_metadata = tt.reshape %a_tile_block_metadata : tensor<1x8x64xi16> -> tensor<8x64xi16>
      %b_rows_block = tt.descriptor_load %b_tensor[%entry, %n, %k] : !tt.tensordesc<tensor<1x256x64xf16>> -> tensor<1x256x64xf16>
      %b_rows = tt.reshape %b_rows_block : tensor<1x256x64xf16> -> tensor<256x64xf16>
      %b_tile = tt.trans %b_rows {order = array<i32: 1, 0>} : tensor<256x64xf16> -> tensor<64x256xf16>
      %product = tt.dot %a_tile, %b_tile, %a_tile_metadata, %partial, sparseIndex = 0 : tensor<128x32xf16>, tensor<8x64xi16> * tensor<64x256xf16> -> tensor<128x256xf32>
      scf.yield %product : tensor<128x256xf32>
    }
    %c_tensor = tt.make_tensor_descriptor %c, [%batch, %N, %M], [%batch_stride_c, %stride_c, %one] : <f16>, <tensor<1x256x128xf16>>
    %c_tile_block = tt.descriptor_load %c_tensor[%entry, %n, %m] : !tt.tensordesc<tensor<1x256x128xf16>> -> tensor<1x256x128xf16>
    %c_tile = tt.reshape %c_tile_block : tensor<1x256x128xf16> -> tensor<256x128xf16>
    %c_turned = tt.trans %c_tile {order = array<i32: 1, 0>} : tensor<256x128xf16> -> tensor<128x256xf16>
    %c_wide = arith.extf %c_turned : tensor<128x256xf16> to tensor<128x256xf32>
    %beta_all = tt.splat %beta : f32 -> tensor<128x256xf32>
    %27 = arith.mulf %c_wide, %beta_all : tensor<128x256xf32>
    %28 = arith.addf %total, %27 : tensor<128x256xf32>
    %result = arith.truncf %28 : tensor<128x256xf32> to tensor<128x256xf16>
    %d_tensor = tt.make_tensor_descriptor %d, [%batch, %N, %M], [%batch_stride_d, %stride_d, %one] : <f16>, <tensor<1x256x128xf16>>
    %transposed = tt.trans %result {order = array<i32: 1, 0>} : tensor<128x256xf16> -> tensor<256x128xf16>
    %block = tt.reshape %transposed : tensor<256x128xf16> -> tensor<1x256x128xf16>
    tt.descriptor_store %d_tensor[%entry, %n, %m], %block : !tt.tensordesc<tensor<1x256x128xf16>>, tensor<1x256x128xf16>
    tt.return
  }
}
