builtin.module {
  tt.func public @persistent_groups(%d: !tt.ptr<f16>, %a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %M: i32, %N: i32, %K: i32, %stride_a: i64, %stride_b: i32, %stride_d: i64, %limit: f32, %mode: i32) attributes {noinline = false, louver.programs = 0 : i64} {
    %row = tt.get_program_id x : i32
    %column = tt.get_program_id y : i32
    %cst = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c0_i32 = arith.constant 0 : i32
    %cst_1 = arith.constant dense<5.000000e-01> : tensor<128x64xf32>
    %cst_2 = arith.constant 0.000000e+00 : f32
    %c1_i32 = arith.constant 1 : i32
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %c1_i64 = arith.constant 1 : i64
    %a_tiles = tt.make_tensor_descriptor %a, [%M, %K], [%stride_a, %c1_i64] : <f16, #tt.sparse<"NV24">>, <tensor<128x64xf16, #tt.sparse<"NV24">>>
    %b_tiles = arith.extsi %stride_b : i32 to i64
    %b_tiles_1 = tt.make_tensor_descriptor %b, [%N, %K], [%b_tiles, %c1_i64] : <f16>, <tensor<64x64xf16>>
    %d_tiles = tt.make_tensor_descriptor %d, [%M, %N], [%stride_d, %c1_i64] : <f16>, <tensor<128x64xf16>>
    %row_1 = arith.muli %row, %c128_i32 : i32
    %column_1 = arith.muli %column, %c64_i32 : i32
    %0 = arith.constant 64 : i32
    %total = scf.for %step = %c0_i32 to %K step %0 iter_args(%total_1 = %cst) -> (tensor<128x64xf32>) : i32 {
      %left = tt.descriptor_load %a_tiles[%row_1, %step] : !tt.tensordesc<tensor<128x64xf16, #tt.sparse<"NV24">>> -> tensor<128x64xf16, #tt.sparse<"NV24">>
      %total_2 = tt.descriptor_load %b_tiles_1[%column_1, %step] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
      %total_3 = tt.trans %total_2 {order = array<i32: 1, 0>} : tensor<64x64xf16> -> tensor<64x64xf16>
      %total_4 = tt.dot %left, %total_3, %total_1, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      scf.yield %total_4 : tensor<128x64xf32>
    }
    %1 = arith.cmpf ogt, %limit, %cst_2 : f32
    %total_5 = tt.splat %limit : f32 -> tensor<128x64xf32>
    %total_6 = arith.minnumf %total, %total_5 : tensor<128x64xf32>
    %total_7 = arith.select %1, %total_6, %total : tensor<128x64xf32>
    %2 = arith.cmpi eq, %mode, %c1_i32 : i32
    %total_8 = arith.mulf %total_7, %cst_1 : tensor<128x64xf32>
    %3 = arith.select %2, %total_8, %total_7 : tensor<128x64xf32>
    %4 = arith.truncf %3 : tensor<128x64xf32> to tensor<128x64xf16>
    tt.descriptor_store %d_tiles[%row_1, %column_1], %4 : !tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>
    tt.return
  }
}
