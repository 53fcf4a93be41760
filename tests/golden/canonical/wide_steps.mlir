builtin.module {
  tt.func public @indexed_pointers(%a: !tt.ptr<i8, #tt.sparse<"NV24">>, %b: !tt.ptr<i8>, %d: !tt.ptr<f16>, %bias: !tt.ptr<f32>, %scale: !tt.ptr<f32>, %M: i32, %N: i32, %K: i32, %stride_a: i64, %stride_b: i32, %stride_d: i64) attributes {noinline = false} {
    %d_tensor = tt.make_tensor_descriptor %d, [%N, %M], [%stride_d, 1] : <f16>, <tensor<64x128xf16>>
    %bias_tensor = tt.make_tensor_descriptor %bias, [%N], [1] : <f32>, <tensor<64xf32>>
    %scale_tensor = tt.make_tensor_descriptor %scale, [%M], [1] : <f32>, <tensor<128xf32>>
    %0 = arith.extsi %stride_b : i32 to i64
    %b_tensor = tt.make_tensor_descriptor %b, [%N, %K], [%0, 1] : <i8>, <tensor<64x256xi8>>
    %a_tensor = tt.make_tensor_descriptor %a, [%M, %K], [%stride_a, 1] : <i8, #tt.sparse<"NV24">>, <tensor<128x256xi8, #tt.sparse<"NV24">>>
    %c256_i32 = arith.constant 256 : i32
    %c0_i32 = arith.constant 0 : i32
    %wide = arith.constant dense<1.000000e+02> : tensor<128x64xf32>
    %wide_1 = arith.constant dense<-1.000000e+02> : tensor<128x64xf32>
    %cst = arith.constant dense<0> : tensor<128x64xi32>
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %m = tt.get_program_id y : i32
    %m_1 = arith.muli %m, %c128_i32 : i32
    %n = tt.get_program_id x : i32
    %n_1 = arith.muli %n, %c64_i32 : i32
    %total = scf.for %first = %c0_i32 to %K step %c256_i32 iter_args(%total_1 = %cst) -> (tensor<128x64xi32>) : i32 {
      %left = tt.descriptor_load %a_tensor[%m_1, %first] : !tt.tensordesc<tensor<128x256xi8, #tt.sparse<"NV24">>> -> tensor<128x256xi8, #tt.sparse<"NV24">>
      %1 = tt.descriptor_load %b_tensor[%n_1, %first] : !tt.tensordesc<tensor<64x256xi8>> -> tensor<64x256xi8>
      %right = tt.trans %1 {order = array<i32: 1, 0>} : tensor<64x256xi8> -> tensor<256x64xi8>
      %total_2 = tt.dot %left, %right, %total_1, inputPrecision = tf32 : tensor<128x256xi8, #tt.sparse<"NV24">> * tensor<256x64xi8> -> tensor<128x64xi32>
      scf.yield %total_2 : tensor<128x64xi32>
    } {tt.num_stages = 3 : i32}
    %wide_2 = arith.sitofp %total : tensor<128x64xi32> to tensor<128x64xf32>
    %wide_3 = tt.descriptor_load %scale_tensor[%m_1] : !tt.tensordesc<tensor<128xf32>> -> tensor<128xf32>
    %wide_4 = tt.expand_dims %wide_3 {axis = 1 : i32} : tensor<128xf32> -> tensor<128x1xf32>
    %wide_5 = tt.broadcast %wide_4 : tensor<128x1xf32> -> tensor<128x64xf32>
    %wide_6 = arith.mulf %wide_2, %wide_5 : tensor<128x64xf32>
    %wide_7 = tt.descriptor_load %bias_tensor[%n_1] : !tt.tensordesc<tensor<64xf32>> -> tensor<64xf32>
    %wide_8 = tt.expand_dims %wide_7 {axis = 0 : i32} : tensor<64xf32> -> tensor<1x64xf32>
    %wide_9 = tt.broadcast %wide_8 : tensor<1x64xf32> -> tensor<128x64xf32>
    %wide_10 = arith.addf %wide_6, %wide_9 : tensor<128x64xf32>
    %wide_11 = tt.clampf %wide_10, %wide_1, %wide, propagateNan = none : tensor<128x64xf32>
    %2 = tt.trans %wide_11 {order = array<i32: 1, 0>} : tensor<128x64xf32> -> tensor<64x128xf32>
    %3 = arith.truncf %2 : tensor<64x128xf32> to tensor<64x128xf16>
    tt.descriptor_store %d_tensor[%n_1, %m_1], %3 : !tt.tensordesc<tensor<64x128xf16>>, tensor<64x128xf16>
    tt.return
  }
}
