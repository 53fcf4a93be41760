builtin.module {
  tt.func public @grouped_pointers(%a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %d: !tt.ptr<f16>, %M: i32, %N: i32, %K: i32, %stride_am: i32, %stride_bk: i32, %stride_dm: i32) attributes {noinline = false} {
    %tile_m = tt.get_program_id x : i32
    %tile_n = tt.get_program_id y : i32
    %0 = arith.extsi %stride_dm : i32 to i64
    %d_tensor = tt.make_tensor_descriptor %d, [%M, %N], [%0, 1] : <f16>, <tensor<128x64xf16>>
    %1 = arith.extsi %stride_bk : i32 to i64
    %b_tensor = tt.make_tensor_descriptor %b, [%K, %N], [%1, 1] : <f16>, <tensor<64x64xf16>>
    %2 = arith.extsi %stride_am : i32 to i64
    %a_tensor = tt.make_tensor_descriptor %a, [%M, %K], [%2, 1] : <f16, #tt.sparse<"NV24">>, <tensor<128x64xf16, #tt.sparse<"NV24">>>
    %total = arith.constant dense<1.000000e-02> : tensor<128x64xf32>
    %cst = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %c0_i32 = arith.constant 0 : i32
    %m_read = arith.muli %tile_m, %c128_i32 : i32
    %n_read = arith.muli %tile_n, %c64_i32 : i32
    %3 = arith.constant 64 : i32
    %total_1 = scf.for %step = %c0_i32 to %K step %3 iter_args(%total_2 = %cst) -> (tensor<128x64xf32>) : i32 {
      %left = tt.descriptor_load %a_tensor[%m_read, %step] : !tt.tensordesc<tensor<128x64xf16, #tt.sparse<"NV24">>> -> tensor<128x64xf16, #tt.sparse<"NV24">>
      %right = tt.descriptor_load %b_tensor[%step, %n_read] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
      %total_3 = tt.dot %left, %right, %total_2, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      scf.yield %total_3 : tensor<128x64xf32>
    }
    %total_4 = arith.cmpf oge, %total_1, %cst : tensor<128x64xf32>
    %total_5 = arith.mulf %total_1, %total : tensor<128x64xf32>
    %total_6 = arith.select %total_4, %total_1, %total_5 : tensor<128x64xi1>, tensor<128x64xf32>
    %result = arith.truncf %total_6 : tensor<128x64xf32> to tensor<128x64xf16>
    tt.descriptor_store %d_tensor[%m_read, %n_read], %result : !tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>
    tt.return
  }
}
