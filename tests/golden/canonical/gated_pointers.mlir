builtin.module {
  tt.func public @gated_pointers(%gate_up: !tt.ptr<f16, #tt.sparse<"NV24">> {louver.gated = ["gate", "up"]}, %x: !tt.ptr<f16>, %y: !tt.ptr<bf16>, %M: i32, %N: i32, %K: i32, %stride_gate: i32, %stride_up: i32, %stride_x: i32, %stride_y: i32) attributes {noinline = false, louver.equal = [["8*(M/8)", "M"], ["stride_gate", "stride_up"]]} {
    %0 = arith.extsi %stride_y : i32 to i64
    %y_tensor = tt.make_tensor_descriptor %y, [%M, %N], [%0, 1] : <bf16>, <tensor<64x64xbf16>>
    %1 = arith.extsi %stride_gate : i32 to i64
    %2 = arith.constant 2 : i32
    %3 = arith.muli %M, %2 : i32
    %gate_up_tensor = tt.make_tensor_descriptor %gate_up, [%3, %K], [%1, 1] : <f16, #tt.sparse<"NV24">>, <tensor<128x64xf16, #tt.sparse<"NV24">>>
    %4 = arith.extsi %stride_x : i32 to i64
    %x_tensor = tt.make_tensor_descriptor %x, [%N, %K], [%4, 1] : <f16>, <tensor<64x64xf16>>
    %c0_i32 = arith.constant 0 : i32
    %cst = arith.constant dense<0.000000e+00> : tensor<64x64xf32>
    %c64_i32 = arith.constant 64 : i32
    %m = tt.get_program_id x : i32
    %5 = arith.constant 128 : i32
    %6 = arith.muli %m, %5 : i32
    %m_1 = arith.muli %m, %c64_i32 : i32
    %n = tt.get_program_id y : i32
    %n_1 = arith.muli %n, %c64_i32 : i32
    %7 = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %one = scf.for %first = %c0_i32 to %K step %c64_i32 iter_args(%one_1 = %7) -> (tensor<128x64xf32>) : i32 {
      %8 = tt.descriptor_load %x_tensor[%n_1, %first] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
      %right = tt.trans %8 {order = array<i32: 1, 0>} : tensor<64x64xf16> -> tensor<64x64xf16>
      %9 = tt.descriptor_load %gate_up_tensor[%6, %first] : !tt.tensordesc<tensor<128x64xf16, #tt.sparse<"NV24">>> -> tensor<128x64xf16, #tt.sparse<"NV24">>
      %10 = tt.dot %9, %right, %one_1, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      scf.yield %10 : tensor<128x64xf32>
    }
    %11 = tt.reshape %one : tensor<128x64xf32> -> tensor<8x2x8x64xf32>
    %12 = tt.trans %11 {order = array<i32: 0, 2, 3, 1>} : tensor<8x2x8x64xf32> -> tensor<8x8x64x2xf32>
    %13, %14 = tt.split %12 : tensor<8x8x64x2xf32> -> tensor<8x8x64xf32>
    %two = tt.reshape %13 : tensor<8x8x64xf32> -> tensor<64x64xf32>
    %two_1 = tt.reshape %14 : tensor<8x8x64xf32> -> tensor<64x64xf32>
    %result = arith.maxnumf %two, %cst : tensor<64x64xf32>
    %result_1 = arith.mulf %result, %two_1 : tensor<64x64xf32>
    %result_2 = arith.addf %result_1, %two : tensor<64x64xf32>
    %15 = arith.truncf %result_2 : tensor<64x64xf32> to tensor<64x64xbf16>
    tt.descriptor_store %y_tensor[%m_1, %n_1], %15 : !tt.tensordesc<tensor<64x64xbf16>>, tensor<64x64xbf16>
    tt.return
  }
}
