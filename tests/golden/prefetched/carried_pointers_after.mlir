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
    %4 = tt.splat %a : !tt.ptr<f16> -> tensor<1x16x!tt.ptr<f16>>
    %5 = tt.addptr %4, %along : tensor<1x16x!tt.ptr<f16>>, tensor<1x16xi32>
    %6 = tt.splat %1 : i64 -> tensor<1x16xi64>
    %7 = tt.addptr %5, %6 : tensor<1x16x!tt.ptr<f16>>, tensor<1x16xi64>
    %8 = tt.broadcast %7 : tensor<1x16x!tt.ptr<f16>> -> tensor<16x16x!tt.ptr<f16>>
    %9 = tt.addptr %8, %a1 : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
    %10 = tt.splat %b : !tt.ptr<f16> -> tensor<1x16x!tt.ptr<f16>>
    %11 = tt.addptr %10, %along : tensor<1x16x!tt.ptr<f16>>, tensor<1x16xi32>
    %12 = tt.splat %2 : i64 -> tensor<1x16xi64>
    %13 = tt.addptr %11, %12 : tensor<1x16x!tt.ptr<f16>>, tensor<1x16xi64>
    %14 = tt.broadcast %13 : tensor<1x16x!tt.ptr<f16>> -> tensor<16x16x!tt.ptr<f16>>
    %15 = tt.addptr %14, %b2 : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
    %16 = tt.splat %3 : i1 -> tensor<16x16xi1>
    %17 = arith.andi %in_a, %16 : tensor<16x16xi1>
    %x = tt.load %9, %17, %none : tensor<16x16x!tt.ptr<f16>>
    %18 = tt.splat %3 : i1 -> tensor<16x16xi1>
    %19 = arith.andi %in_b, %18 : tensor<16x16xi1>
    %y = tt.load %15, %19, %none : tensor<16x16x!tt.ptr<f16>>
    %sum, %last_p, %last_q, %20, %21 = scf.for %i = %first to %K step %step iter_args(%s = %zeros, %p = %1, %q = %2, %x_1 = %x, %y_1 = %y) -> (tensor<16x16xf32>, i64, i64, tensor<16x16xf16>, tensor<16x16xf16>) : i32 {
      %22 = arith.constant 256 : i32
      %23 = tt.splat %a : !tt.ptr<f16> -> tensor<1x16x!tt.ptr<f16>>
      %24 = tt.addptr %23, %along : tensor<1x16x!tt.ptr<f16>>, tensor<1x16xi32>
      %25 = tt.splat %b : !tt.ptr<f16> -> tensor<1x16x!tt.ptr<f16>>
      %26 = tt.addptr %25, %along : tensor<1x16x!tt.ptr<f16>>, tensor<1x16xi32>
      %27 = arith.extsi %0 : i32 to i64
      %28 = arith.addi %p, %27 : i64
      %29 = arith.extsi %22 : i32 to i64
      %30 = arith.addi %q, %29 : i64
      %31 = arith.subi %K, %i : i32
      %32 = arith.cmpi ult, %step, %31 : i32
      %i_1 = arith.addi %i, %step : i32
      %rest_1 = arith.subi %K, %i_1 : i32
      %left_1 = tt.splat %rest_1 : i32 -> tensor<16x16xi32>
      %in_a_1 = arith.cmpi slt, %columns, %left_1 : tensor<16x16xi32>
      %in_b_1 = arith.cmpi slt, %rows, %left_1 : tensor<16x16xi32>
      %33 = tt.splat %28 : i64 -> tensor<1x16xi64>
      %34 = tt.addptr %24, %33 : tensor<1x16x!tt.ptr<f16>>, tensor<1x16xi64>
      %35 = tt.broadcast %34 : tensor<1x16x!tt.ptr<f16>> -> tensor<16x16x!tt.ptr<f16>>
      %36 = tt.addptr %35, %a1 : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
      %37 = tt.splat %30 : i64 -> tensor<1x16xi64>
      %38 = tt.addptr %26, %37 : tensor<1x16x!tt.ptr<f16>>, tensor<1x16xi64>
      %39 = tt.broadcast %38 : tensor<1x16x!tt.ptr<f16>> -> tensor<16x16x!tt.ptr<f16>>
      %40 = tt.addptr %39, %b2 : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
      %41 = tt.splat %32 : i1 -> tensor<16x16xi1>
      %42 = arith.andi %in_a_1, %41 : tensor<16x16xi1>
      %x_2 = tt.load %36, %42, %none : tensor<16x16x!tt.ptr<f16>>
      %43 = tt.splat %32 : i1 -> tensor<16x16xi1>
      %44 = arith.andi %in_b_1, %43 : tensor<16x16xi1>
      %y_2 = tt.load %40, %44, %none : tensor<16x16x!tt.ptr<f16>>
      %t = tt.dot %x_1, %y_1, %s : tensor<16x16xf16> * tensor<16x16xf16> -> tensor<16x16xf32>
      scf.yield %t, %28, %30, %x_2, %y_2 : tensor<16x16xf32>, i64, i64, tensor<16x16xf16>, tensor<16x16xf16>
    }
    %45 = tt.splat %out : !tt.ptr<f32> -> tensor<1x16x!tt.ptr<f32>>
    %46 = tt.addptr %45, %along : tensor<1x16x!tt.ptr<f32>>, tensor<1x16xi32>
    %47 = tt.broadcast %46 : tensor<1x16x!tt.ptr<f32>> -> tensor<16x16x!tt.ptr<f32>>
    %48 = tt.addptr %47, %b2 : tensor<16x16x!tt.ptr<f32>>, tensor<16x16xi32>
    tt.store %48, %sum : tensor<16x16x!tt.ptr<f32>>
    tt.return
  }
}
