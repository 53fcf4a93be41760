builtin.module {
  tt.func public @k(%out: !tt.ptr<f32>, %a: !tt.ptr<f16>, %b: !tt.ptr<f16>, %K: i32, %first: i32, %step: i32) attributes {noinline = false} {
    %r = tt.make_range {start = 0 : i32, end = 16 : i32} : tensor<16xi32>
    %down = tt.expand_dims %r {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
    %rows = tt.broadcast %down : tensor<16x1xi32> -> tensor<16x16xi32>
    %along = tt.expand_dims %r {axis = 0 : i32} : tensor<16xi32> -> tensor<1x16xi32>
    %columns = tt.broadcast %along : tensor<1x16xi32> -> tensor<16x16xi32>
    %pitch = tt.splat %K : i32 -> tensor<16x16xi32>
    %0 = arith.constant 16 : i32
    %sixteen = arith.constant dense<16> : tensor<16x16xi32>
    %zeros = arith.constant dense<0.000000e+00> : tensor<16x16xf32>
    %none = arith.constant dense<0.000000e+00> : tensor<16x16xf16>
    %a1 = arith.muli %rows, %pitch : tensor<16x16xi32>
    %b2 = arith.muli %rows, %sixteen : tensor<16x16xi32>
    %1 = arith.constant 0 : i64
    %2 = arith.constant 0 : i64
    %sum, %last_p, %last_q = scf.for %i = %first to %K step %step iter_args(%s = %zeros, %p = %1, %q = %2) -> (tensor<16x16xf32>, i64, i64) : i32 {
      %3 = arith.constant 256 : i32
      %rest = arith.subi %K, %i : i32
      %left = tt.splat %rest : i32 -> tensor<16x16xi32>
      %in_a = arith.cmpi slt, %columns, %left : tensor<16x16xi32>
      %in_b = arith.cmpi slt, %rows, %left : tensor<16x16xi32>
      %4 = tt.addptr %a, %p : !tt.ptr<f16>, i64
      %5 = tt.splat %4 : !tt.ptr<f16> -> tensor<1x16x!tt.ptr<f16>>
      %6 = tt.addptr %5, %along : tensor<1x16x!tt.ptr<f16>>, tensor<1x16xi32>
      %7 = tt.broadcast %6 : tensor<1x16x!tt.ptr<f16>> -> tensor<16x16x!tt.ptr<f16>>
      %8 = tt.addptr %7, %a1 : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
      %x = tt.load %8, %in_a, %none : tensor<16x16x!tt.ptr<f16>>
      %9 = tt.addptr %b, %q : !tt.ptr<f16>, i64
      %10 = tt.splat %9 : !tt.ptr<f16> -> tensor<1x16x!tt.ptr<f16>>
      %11 = tt.addptr %10, %along : tensor<1x16x!tt.ptr<f16>>, tensor<1x16xi32>
      %12 = tt.broadcast %11 : tensor<1x16x!tt.ptr<f16>> -> tensor<16x16x!tt.ptr<f16>>
      %13 = tt.addptr %12, %b2 : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
      %y = tt.load %13, %in_b, %none : tensor<16x16x!tt.ptr<f16>>
      %t = tt.dot %x, %y, %s : tensor<16x16xf16> * tensor<16x16xf16> -> tensor<16x16xf32>
      %14 = arith.extsi %0 : i32 to i64
      %15 = arith.addi %p, %14 : i64
      %16 = arith.extsi %3 : i32 to i64
      %17 = arith.addi %q, %16 : i64
      scf.yield %t, %15, %17 : tensor<16x16xf32>, i64, i64
    }
    %18 = tt.splat %out : !tt.ptr<f32> -> tensor<1x16x!tt.ptr<f32>>
    %19 = tt.addptr %18, %along : tensor<1x16x!tt.ptr<f32>>, tensor<1x16xi32>
    %20 = tt.broadcast %19 : tensor<1x16x!tt.ptr<f32>> -> tensor<16x16x!tt.ptr<f32>>
    %21 = tt.addptr %20, %b2 : tensor<16x16x!tt.ptr<f32>>, tensor<16x16xi32>
    tt.store %21, %sum : tensor<16x16x!tt.ptr<f32>>
    tt.return
  }
}
