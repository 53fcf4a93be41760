builtin.module {
  tt.func public @whole_blocks(%d: !tt.ptr<f16>, %a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>) attributes {noinline = false} {
    %cst = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c128_i64 = arith.constant 128 : i64
    %c64_i64 = arith.constant 64 : i64
    %c1_i64 = arith.constant 1 : i64
    %c0_i32 = arith.constant 0 : i32
    %lefts = tt.make_tensor_ptr %a, [%c128_i64, %c64_i64], [%c64_i64, %c1_i64], [%c0_i32, %c0_i32] {order = array<i32: 1, 0>} : <tensor<128x64xf16, #tt.sparse<"NV24">>>
    %rights = tt.make_tensor_ptr %b, [%c64_i64, %c64_i64], [%c64_i64, %c1_i64], [%c0_i32, %c0_i32] {order = array<i32: 1, 0>} : <tensor<64x64xf16>>
    %outs = tt.make_tensor_ptr %d, [%c128_i64, %c64_i64], [%c64_i64, %c1_i64], [%c0_i32, %c0_i32] {order = array<i32: 1, 0>} : <tensor<128x64xf16>>
    %0 = tt.load %lefts : !tt.ptr<tensor<128x64xf16, #tt.sparse<"NV24">>>
    %1 = tt.load %rights : !tt.ptr<tensor<64x64xf16>>
    %2 = tt.dot %0, %1, %cst, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
    %3 = arith.truncf %2 : tensor<128x64xf32> to tensor<128x64xf16>
    tt.store %outs, %3 : !tt.ptr<tensor<128x64xf16>>
    tt.return
  }
}
