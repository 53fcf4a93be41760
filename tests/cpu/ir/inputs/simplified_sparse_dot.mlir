// A sparse product in the simplified syntax in which sparse encodings for Triton were first documented.
module {
  tt.func public @dot_kernel(%arg0: !tt.ptr<f16>, %arg1: !tt.ptr<f16, #tt.sparse<"NV24">>, %arg2: !tt.ptr<f16>) {
    %A_ptrs = tt.make_tensor_ptr %arg1, shape=[32, 64], strides=[64, 1], offsets=[0, 0] : <tensor<32x64xf16, #tt.sparse<"NV24">>>
    %B_ptrs = tt.make_tensor_ptr %arg2, shape=[64, 16], strides=[16, 1], offsets=[0, 0] : <tensor<64x16xf16>>
    %D_ptrs = tt.make_tensor_ptr %arg0, shape=[32, 16], strides=[16, 1], offsets=[0, 0] : <tensor<32x16xf16>>
    %A = tt.load %A_ptrs : !tt.ptr<tensor<32x64xf16, #tt.sparse<"NV24">>>
    %B = tt.load %B_ptrs : !tt.ptr<tensor<64x16xf16>>
    %cst = arith.constant dense<0.000000e+00> : tensor<32x16xf32>
    %D = tt.dot %A, %B, %cst : tensor<32x64xf16, #tt.sparse<"NV24">> * tensor<64x16xf16> -> tensor<32x16xf32>
    %D_trunc = arith.truncf %D : tensor<32x16xf32> to tensor<32x16xf16>
    tt.store %D_ptrs, %D_trunc : !tt.ptr<tensor<32x16xf16>>
    tt.return
  }
}
