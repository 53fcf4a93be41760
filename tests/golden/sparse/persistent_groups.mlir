builtin.module {
  tt.func public @persistent_groups(%d: !tt.ptr<f16>, %a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %M: i32, %N: i32, %K: i32, %stride_a: i64, %stride_b: i32, %stride_d: i64, %limit: f32, %mode: i32) attributes {noinline = false} {
    %cst = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c63_i32 = arith.constant 63 : i32
    %c0_i32 = arith.constant 0 : i32
    %cst_1 = arith.constant dense<5.000000e-01> : tensor<128x64xf32>
    %cst_2 = arith.constant 0.000000e+00 : f32
    %c1_i32 = arith.constant 1 : i32
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %c4_i32 = arith.constant 4 : i32
    %c1_i64 = arith.constant 1 : i64
    %tiles_m = arith.constant 127 : i32
    %tiles_m_1 = arith.addi %M, %tiles_m : i32
    %tiles_m_2 = arith.divsi %tiles_m_1, %c128_i32 : i32
    %tiles_n = arith.addi %N, %c63_i32 : i32
    %tiles_n_1 = arith.divsi %tiles_n, %c64_i32 : i32
    %a_tiles = tt.make_tensor_descriptor %a, [%M, %K], [%stride_a, %c1_i64] : <f16, #tt.sparse<"NV24">>, <tensor<128x64xf16, #tt.sparse<"NV24">>>
    %b_tiles = arith.extsi %stride_b : i32 to i64
    %b_tiles_1 = tt.make_tensor_descriptor %b, [%N, %K], [%b_tiles, %c1_i64] : <f16>, <tensor<64x64xf16>>
    %d_tiles = tt.make_tensor_descriptor %d, [%M, %N], [%stride_d, %c1_i64] : <f16>, <tensor<128x64xf16>>
    %0 = tt.get_program_id x : i32
    %1 = arith.muli %tiles_m_2, %tiles_n_1 : i32
    %2 = tt.get_num_programs x : i32
    scf.for %tile = %0 to %1 step %2 : i32 {
      %of_group = arith.muli %tiles_n_1, %c4_i32 : i32
      %first_m = arith.divsi %tile, %of_group : i32
      %first_m_1 = arith.muli %first_m, %c4_i32 : i32
      %rows = arith.subi %tiles_m_2, %first_m_1 : i32
      %rows_1 = arith.minsi %rows, %c4_i32 : i32
      %row = arith.remsi %tile, %of_group : i32
      %row_1 = arith.remsi %row, %rows_1 : i32
      %row_2 = arith.addi %first_m_1, %row_1 : i32
      %row_3 = arith.muli %row_2, %c128_i32 : i32
      %column = arith.divsi %row, %rows_1 : i32
      %column_1 = arith.muli %column, %c64_i32 : i32
      %3 = arith.addi %K, %c63_i32 : i32
      %4 = arith.divsi %3, %c64_i32 : i32
      %total = scf.for %step = %c0_i32 to %4 step %c1_i32 iter_args(%total_1 = %cst) -> (tensor<128x64xf32>) : i32 {
        %left = arith.muli %step, %c64_i32 : i32
        %left_1 = tt.descriptor_load %a_tiles[%row_3, %left] : !tt.tensordesc<tensor<128x64xf16, #tt.sparse<"NV24">>> -> tensor<128x64xf16, #tt.sparse<"NV24">>
        %total_2 = tt.descriptor_load %b_tiles_1[%column_1, %left] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
        %total_3 = tt.trans %total_2 {order = array<i32: 1, 0>} : tensor<64x64xf16> -> tensor<64x64xf16>
        %total_4 = tt.dot %left_1, %total_3, %total_1, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
        scf.yield %total_4 : tensor<128x64xf32>
      }
      %5 = arith.cmpf ogt, %limit, %cst_2 : f32
      %total_5 = scf.if %5 -> (tensor<128x64xf32>) {
        %total_6 = tt.splat %limit : f32 -> tensor<128x64xf32>
        %total_7 = arith.minnumf %total, %total_6 : tensor<128x64xf32>
        scf.yield %total_7 : tensor<128x64xf32>
      } else {
        scf.yield %total : tensor<128x64xf32>
      }
      %6 = arith.cmpi eq, %mode, %c1_i32 : i32
      %7 = scf.if %6 -> (tensor<128x64xf32>) {
        %total_8 = arith.mulf %total_5, %cst_1 : tensor<128x64xf32>
        scf.yield %total_8 : tensor<128x64xf32>
      } else {
        scf.yield %total_5 : tensor<128x64xf32>
      }
      %8 = arith.truncf %7 : tensor<128x64xf32> to tensor<128x64xf16>
      tt.descriptor_store %d_tiles[%row_3, %column_1], %8 : !tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>
    }
    tt.return
  }
}
