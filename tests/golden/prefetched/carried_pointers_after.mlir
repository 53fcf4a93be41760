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
    %3 = arith.cmpi slt, %first, %K : i32
    %rest = arith.subi %K, %first : i32
    %left = tt.splat %rest : i32 -> tensor<16x16xi32>
    %in_a = arith.cmpi slt, %columns, %left : tensor<16x16xi32>
    %in_b = arith.cmpi slt, %rows, %left : tensor<16x16xi32>
    %4 = tt.addptr %a, %1 : !tt.ptr<f16>, i64
    %5 = tt.splat %4 : !tt.ptr<f16> -> tensor<1x16x!tt.ptr<f16>>
    %6 = tt.addptr %5, %along : tensor<1x16x!tt.ptr<f16>>, tensor<1x16xi32>
    %7 = tt.broadcast %6 : tensor<1x16x!tt.ptr<f16>> -> tensor<16x16x!tt.ptr<f16>>
    %8 = tt.addptr %7, %a1 : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
    %9 = tt.addptr %b, %2 : !tt.ptr<f16>, i64
    %10 = tt.splat %9 : !tt.ptr<f16> -> tensor<1x16x!tt.ptr<f16>>
    %11 = tt.addptr %10, %along : tensor<1x16x!tt.ptr<f16>>, tensor<1x16xi32>
    %12 = tt.broadcast %11 : tensor<1x16x!tt.ptr<f16>> -> tensor<16x16x!tt.ptr<f16>>
    %13 = tt.addptr %12, %b2 : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
    %14 = tt.splat %3 : i1 -> tensor<16x16xi1>
    %15 = arith.andi %in_a, %14 : tensor<16x16xi1>
    %x = tt.load %8, %15, %none : tensor<16x16x!tt.ptr<f16>>
    %16 = tt.splat %3 : i1 -> tensor<16x16xi1>
    %17 = arith.andi %in_b, %16 : tensor<16x16xi1>
    %y = tt.load %13, %17, %none : tensor<16x16x!tt.ptr<f16>>
    %sum, %last_p, %last_q, %18, %19 = scf.for %i = %first to %K step %step iter_args(%s = %zeros, %p = %1, %q = %2, %x_1 = %x, %y_1 = %y) -> (tensor<16x16xf32>, i64, i64, tensor<16x16xf16>, tensor<16x16xf16>) : i32 {
      %20 = arith.constant 256 : i32
      %21 = arith.extsi %0 : i32 to i64
      %22 = arith.addi %p, %21 : i64
      %23 = arith.extsi %20 : i32 to i64
      %24 = arith.addi %q, %23 : i64
      %25 = arith.subi %K, %i : i32
      %26 = arith.cmpi ult, %step, %25 : i32
      %i_1 = arith.addi %i, %step : i32
      %rest_1 = arith.subi %K, %i_1 : i32
      %left_1 = tt.splat %rest_1 : i32 -> tensor<16x16xi32>
      %in_a_1 = arith.cmpi slt, %columns, %left_1 : tensor<16x16xi32>
      %in_b_1 = arith.cmpi slt, %rows, %left_1 : tensor<16x16xi32>
      %27 = tt.addptr %a, %22 : !tt.ptr<f16>, i64
      %28 = tt.splat %27 : !tt.ptr<f16> -> tensor<1x16x!tt.ptr<f16>>
      %29 = tt.addptr %28, %along : tensor<1x16x!tt.ptr<f16>>, tensor<1x16xi32>
      %30 = tt.broadcast %29 : tensor<1x16x!tt.ptr<f16>> -> tensor<16x16x!tt.ptr<f16>>
      %31 = tt.addptr %30, %a1 : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
      %32 = tt.addptr %b, %24 : !tt.ptr<f16>, i64
      %33 = tt.splat %32 : !tt.ptr<f16> -> tensor<1x16x!tt.ptr<f16>>
      %34 = tt.addptr %33, %along : tensor<1x16x!tt.ptr<f16>>, tensor<1x16xi32>
      %35 = tt.broadcast %34 : tensor<1x16x!tt.ptr<f16>> -> tensor<16x16x!tt.ptr<f16>>
      %36 = tt.addptr %35, %b2 : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
      %37 = tt.splat %26 : i1 -> tensor<16x16xi1>
      %38 = arith.andi %in_a_1, %37 : tensor<16x16xi1>
      %x_2 = tt.load %31, %38, %none : tensor<16x16x!tt.ptr<f16>>
      %39 = tt.splat %26 : i1 -> tensor<16x16xi1>
      %40 = arith.andi %in_b_1, %39 : tensor<16x16xi1>
      %y_2 = tt.load %36, %40, %none : tensor<16x16x!tt.ptr<f16>>
      %t = tt.dot %x_1, %y_1, %s : tensor<16x16xf16> * tensor<16x16xf16> -> tensor<16x16xf32>
      scf.yield %t, %22, %24, %x_2, %y_2 : tensor<16x16xf32>, i64, i64, tensor<16x16xf16>, tensor<16x16xf16>
    }
    %41 = tt.splat %out : !tt.ptr<f32> -> tensor<1x16x!tt.ptr<f32>>
    %42 = tt.addptr %41, %along : tensor<1x16x!tt.ptr<f32>>, tensor<1x16xi32>
    %43 = tt.broadcast %42 : tensor<1x16x!tt.ptr<f32>> -> tensor<16x16x!tt.ptr<f32>>
    %44 = tt.addptr %43, %b2 : tensor<16x16x!tt.ptr<f32>>, tensor<16x16xi32>
    tt.store %44, %sum : tensor<16x16x!tt.ptr<f32>>
    tt.return
  }
}
