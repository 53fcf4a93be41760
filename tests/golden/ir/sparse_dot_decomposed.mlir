builtin.module {
  tt.func public @dot_kernel(%arg0: !tt.ptr<f16>, %arg1: !tt.ptr<f16>, %arg1_metadata: !tt.ptr<i16>, %arg2: !tt.ptr<f16>) {
    %A_ptrs = tt.make_tensor_ptr %arg1, [32, 32], [32, 1], [0, 0] : <tensor<32x32xf16>>
    %A_ptrs_metadata = tt.make_tensor_ptr %arg1_metadata, [2, 64], [64, 1], [0, 0] : <tensor<2x64xi16>>
    %B_ptrs = tt.make_tensor_ptr %arg2, [64, 16], [16, 1], [0, 0] : <tensor<64x16xf16>>
    %D_ptrs = tt.make_tensor_ptr %arg0, [32, 16], [16, 1], [0, 0] : <tensor<32x16xf16>>
    %A = tt.load %A_ptrs : !tt.ptr<tensor<32x32xf16>>
    %A_metadata = tt.load %A_ptrs_metadata : !tt.ptr<tensor<2x64xi16>>
    %B = tt.load %B_ptrs : !tt.ptr<tensor<64x16xf16>>
    %cst = arith.constant dense<0.000000e+00> : tensor<32x16xf32>
    %D = tt.dot %A, %B, %A_metadata, %cst, sparseIndex = 0 : tensor<32x32xf16>, tensor<2x64xi16> * tensor<64x16xf16> -> tensor<32x16xf32>
    %D_trunc = arith.truncf %D : tensor<32x16xf32> to tensor<32x16xf16>
    tt.store %D_ptrs, %D_trunc : !tt.ptr<tensor<32x16xf16>>
    tt.return
  }
}
