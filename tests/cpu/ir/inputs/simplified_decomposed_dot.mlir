// The same product after decomposition, in the simplified syntax; the metadata's load has its name here.
module {
  tt.func public @dot_kernel(%arg0: !tt.ptr<f16>, %arg1: !tt.ptr<f16>, %arg2: !tt.ptr<i16>, %arg3: !tt.ptr<f16>) {
    %A_ptrs = tt.make_tensor_ptr %arg1, shape=[32, 32], strides=[32, 1], offsets=[0, 0] : <tensor<32x32xf16>>
    %E_ptrs = tt.make_tensor_ptr %arg2, shape=[2, 64], strides=[64, 1], offsets=[0, 0] : <tensor<2x64xi16>>
    %B_ptrs = tt.make_tensor_ptr %arg3, shape=[64, 16], strides=[16, 1], offsets=[0, 0] : <tensor<64x16xf16>>
    %D_ptrs = tt.make_tensor_ptr %arg0, shape=[32, 16], strides=[16, 1], offsets=[0, 0] : <tensor<32x16xf16>>
    %A = tt.load %A_ptrs : !tt.ptr<tensor<32x32xf16>>
    %E = tt.load %E_ptrs : !tt.ptr<tensor<2x64xi16>>
    %B = tt.load %B_ptrs : !tt.ptr<tensor<64x16xf16>>
    %cst = arith.constant dense<0.000000e+00> : tensor<32x16xf32>
    %D = tt.dot %A, %B, %E, %cst, sparseIndex=0 : tensor<32x32xf16>, tensor<2x64xi16> * tensor<64x16xf16> -> tensor<32x16xf32>
    %D_trunc = arith.truncf %D : tensor<32x16xf32> to tensor<32x16xf16>
    tt.store %D_ptrs, %D_trunc : !tt.ptr<tensor<32x16xf16>>
    tt.return
  }
}
