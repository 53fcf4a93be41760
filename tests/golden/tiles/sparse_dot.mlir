#mma = #tt.mma<{version = 2, warpsPerCTA = [1, 1], instrShape = [16, 8]}>
#slice = #tt.slice<{dim = 1, parent = #mma}>
#dot_op = #tt.dot_op<{opIdx = 0, parent = #mma, kWidth = 2, meta = 0}>
#slice_1 = #tt.slice<{dim = 0, parent = #dot_op}>
#slice_2 = #tt.slice<{dim = 1, parent = #dot_op}>
#dot_op_1 = #tt.dot_op<{opIdx = 0, parent = #mma, kWidth = 2, meta = 1}>
#slice_3 = #tt.slice<{dim = 1, parent = #dot_op_1}>
#slice_4 = #tt.slice<{dim = 0, parent = #dot_op_1}>
#dot_op_2 = #tt.dot_op<{opIdx = 1, parent = #mma, kWidth = 2}>
#slice_5 = #tt.slice<{dim = 1, parent = #dot_op_2}>
#slice_6 = #tt.slice<{dim = 0, parent = #mma}>
#slice_7 = #tt.slice<{dim = 0, parent = #dot_op_2}>
builtin.module {
  tt.func public @dot_kernel(%arg0: !tt.ptr<f16>, %arg1: !tt.ptr<f16>, %arg1_metadata: !tt.ptr<i16>, %arg2: !tt.ptr<f16>) attributes {louver.reach = [["arg1", "rows", "32"], ["arg1", "columns", "64"]]} {
    %0 = arith.constant 32 : i64
    %1 = arith.constant 1 : i64
    %2 = arith.constant 0 : i64
    %3 = arith.constant 64 : i64
    %4 = arith.constant 16 : i64
    %5 = tt.make_range {start = 0 : i32, end = 32 : i32} : tensor<32xi32, #slice>
    %6 = tt.make_range {start = 0 : i32, end = 32 : i32} : tensor<32xi32, #slice_1>
    %7 = tt.make_range {start = 0 : i32, end = 32 : i32} : tensor<32xi32, #slice_2>
    %8 = arith.extsi %5 : tensor<32xi32, #slice> to tensor<32xi64, #slice>
    %9 = arith.extsi %6 : tensor<32xi32, #slice_1> to tensor<32xi64, #slice_1>
    %10 = arith.extsi %7 : tensor<32xi32, #slice_2> to tensor<32xi64, #slice_2>
    %11 = tt.splat %2 : i64 -> tensor<32xi64, #slice>
    %12 = tt.splat %2 : i64 -> tensor<32xi64, #slice_1>
    %13 = tt.splat %2 : i64 -> tensor<32xi64, #slice_2>
    %14 = arith.addi %11, %8 : tensor<32xi64, #slice>
    %15 = arith.addi %12, %9 : tensor<32xi64, #slice_1>
    %16 = arith.addi %13, %10 : tensor<32xi64, #slice_2>
    %17 = tt.splat %0 : i64 -> tensor<32xi64, #slice_2>
    %18 = arith.muli %16, %17 : tensor<32xi64, #slice_2>
    %19 = tt.expand_dims %18 {axis = 1 : i32} : tensor<32xi64, #slice_2> -> tensor<32x1xi64, #dot_op>
    %20 = tt.splat %1 : i64 -> tensor<32xi64, #slice_1>
    %21 = arith.muli %15, %20 : tensor<32xi64, #slice_1>
    %22 = tt.expand_dims %21 {axis = 0 : i32} : tensor<32xi64, #slice_1> -> tensor<1x32xi64, #dot_op>
    %23 = tt.splat %arg1 : !tt.ptr<f16> -> tensor<32x1x!tt.ptr<f16>, #dot_op>
    %24 = tt.addptr %23, %19 : tensor<32x1x!tt.ptr<f16>, #dot_op>, tensor<32x1xi64, #dot_op>
    %25 = tt.broadcast %24 : tensor<32x1x!tt.ptr<f16>, #dot_op> -> tensor<32x32x!tt.ptr<f16>, #dot_op>
    %26 = tt.broadcast %22 : tensor<1x32xi64, #dot_op> -> tensor<32x32xi64, #dot_op>
    %27 = tt.addptr %25, %26 : tensor<32x32x!tt.ptr<f16>, #dot_op>, tensor<32x32xi64, #dot_op>
    %A = tt.load %27 : tensor<32x32x!tt.ptr<f16>, #dot_op>
    %28 = tt.make_range {start = 0 : i32, end = 2 : i32} : tensor<2xi32, #slice_3>
    %29 = arith.extsi %28 : tensor<2xi32, #slice_3> to tensor<2xi64, #slice_3>
    %30 = tt.splat %2 : i64 -> tensor<2xi64, #slice_3>
    %31 = arith.addi %30, %29 : tensor<2xi64, #slice_3>
    %32 = tt.splat %3 : i64 -> tensor<2xi64, #slice_3>
    %33 = arith.muli %31, %32 : tensor<2xi64, #slice_3>
    %34 = tt.expand_dims %33 {axis = 1 : i32} : tensor<2xi64, #slice_3> -> tensor<2x1xi64, #dot_op_1>
    %35 = tt.make_range {start = 0 : i32, end = 64 : i32} : tensor<64xi32, #slice_4>
    %36 = tt.make_range {start = 0 : i32, end = 64 : i32} : tensor<64xi32, #slice_5>
    %37 = arith.extsi %35 : tensor<64xi32, #slice_4> to tensor<64xi64, #slice_4>
    %38 = arith.extsi %36 : tensor<64xi32, #slice_5> to tensor<64xi64, #slice_5>
    %39 = tt.splat %2 : i64 -> tensor<64xi64, #slice_4>
    %40 = tt.splat %2 : i64 -> tensor<64xi64, #slice_5>
    %41 = arith.addi %39, %37 : tensor<64xi64, #slice_4>
    %42 = arith.addi %40, %38 : tensor<64xi64, #slice_5>
    %43 = tt.splat %1 : i64 -> tensor<64xi64, #slice_4>
    %44 = arith.muli %41, %43 : tensor<64xi64, #slice_4>
    %45 = tt.expand_dims %44 {axis = 0 : i32} : tensor<64xi64, #slice_4> -> tensor<1x64xi64, #dot_op_1>
    %46 = tt.splat %arg1_metadata : !tt.ptr<i16> -> tensor<2x1x!tt.ptr<i16>, #dot_op_1>
    %47 = tt.addptr %46, %34 : tensor<2x1x!tt.ptr<i16>, #dot_op_1>, tensor<2x1xi64, #dot_op_1>
    %48 = tt.broadcast %47 : tensor<2x1x!tt.ptr<i16>, #dot_op_1> -> tensor<2x64x!tt.ptr<i16>, #dot_op_1>
    %49 = tt.broadcast %45 : tensor<1x64xi64, #dot_op_1> -> tensor<2x64xi64, #dot_op_1>
    %50 = tt.addptr %48, %49 : tensor<2x64x!tt.ptr<i16>, #dot_op_1>, tensor<2x64xi64, #dot_op_1>
    %A_metadata = tt.load %50 : tensor<2x64x!tt.ptr<i16>, #dot_op_1>
    %51 = tt.splat %4 : i64 -> tensor<64xi64, #slice_5>
    %52 = arith.muli %42, %51 : tensor<64xi64, #slice_5>
    %53 = tt.expand_dims %52 {axis = 1 : i32} : tensor<64xi64, #slice_5> -> tensor<64x1xi64, #dot_op_2>
    %54 = tt.make_range {start = 0 : i32, end = 16 : i32} : tensor<16xi32, #slice_6>
    %55 = tt.make_range {start = 0 : i32, end = 16 : i32} : tensor<16xi32, #slice_7>
    %56 = arith.extsi %54 : tensor<16xi32, #slice_6> to tensor<16xi64, #slice_6>
    %57 = arith.extsi %55 : tensor<16xi32, #slice_7> to tensor<16xi64, #slice_7>
    %58 = tt.splat %2 : i64 -> tensor<16xi64, #slice_6>
    %59 = tt.splat %2 : i64 -> tensor<16xi64, #slice_7>
    %60 = arith.addi %58, %56 : tensor<16xi64, #slice_6>
    %61 = arith.addi %59, %57 : tensor<16xi64, #slice_7>
    %62 = tt.splat %1 : i64 -> tensor<16xi64, #slice_6>
    %63 = tt.splat %1 : i64 -> tensor<16xi64, #slice_7>
    %64 = arith.muli %60, %62 : tensor<16xi64, #slice_6>
    %65 = arith.muli %61, %63 : tensor<16xi64, #slice_7>
    %66 = tt.expand_dims %64 {axis = 0 : i32} : tensor<16xi64, #slice_6> -> tensor<1x16xi64, #mma>
    %67 = tt.expand_dims %65 {axis = 0 : i32} : tensor<16xi64, #slice_7> -> tensor<1x16xi64, #dot_op_2>
    %68 = tt.splat %arg2 : !tt.ptr<f16> -> tensor<64x1x!tt.ptr<f16>, #dot_op_2>
    %69 = tt.addptr %68, %53 : tensor<64x1x!tt.ptr<f16>, #dot_op_2>, tensor<64x1xi64, #dot_op_2>
    %70 = tt.broadcast %69 : tensor<64x1x!tt.ptr<f16>, #dot_op_2> -> tensor<64x16x!tt.ptr<f16>, #dot_op_2>
    %71 = tt.broadcast %67 : tensor<1x16xi64, #dot_op_2> -> tensor<64x16xi64, #dot_op_2>
    %72 = tt.addptr %70, %71 : tensor<64x16x!tt.ptr<f16>, #dot_op_2>, tensor<64x16xi64, #dot_op_2>
    %B = tt.load %72 : tensor<64x16x!tt.ptr<f16>, #dot_op_2>
    %cst = arith.constant dense<0.000000e+00> : tensor<32x16xf32, #mma>
    %D = tt.dot %A, %B, %A_metadata, %cst, sparseIndex = 0 : tensor<32x32xf16, #dot_op>, tensor<2x64xi16, #dot_op_1> * tensor<64x16xf16, #dot_op_2> -> tensor<32x16xf32, #mma>
    %D_trunc = arith.truncf %D : tensor<32x16xf32, #mma> to tensor<32x16xf16, #mma>
    %73 = tt.splat %4 : i64 -> tensor<32xi64, #slice>
    %74 = arith.muli %14, %73 : tensor<32xi64, #slice>
    %75 = tt.expand_dims %74 {axis = 1 : i32} : tensor<32xi64, #slice> -> tensor<32x1xi64, #mma>
    %76 = tt.splat %arg0 : !tt.ptr<f16> -> tensor<32x1x!tt.ptr<f16>, #mma>
    %77 = tt.addptr %76, %75 : tensor<32x1x!tt.ptr<f16>, #mma>, tensor<32x1xi64, #mma>
    %78 = tt.broadcast %77 : tensor<32x1x!tt.ptr<f16>, #mma> -> tensor<32x16x!tt.ptr<f16>, #mma>
    %79 = tt.broadcast %66 : tensor<1x16xi64, #mma> -> tensor<32x16xi64, #mma>
    %80 = tt.addptr %78, %79 : tensor<32x16x!tt.ptr<f16>, #mma>, tensor<32x16xi64, #mma>
    tt.store %80, %D_trunc : tensor<32x16x!tt.ptr<f16>, #mma>
    tt.return
  }
}
