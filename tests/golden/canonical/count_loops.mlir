builtin.module {
  tt.func public @k(%x: !tt.ptr<f32>, %out: !tt.ptr<f32>, %K: i32) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32
    %c2 = arith.constant 2 : i32
    %zero = arith.constant 0.000000e+00 : f32
    %0 = arith.constant 2 : i32
    %total = scf.for %range = %c0 to %K step %0 iter_args(%sum = %zero) -> (f32) : i32 {
      %k = arith.subi %K, %range : i32
      %1 = arith.constant 2 : i32
      %end = scf.for %i = %c0 to %K step %1 iter_args(%q = %x) -> (!tt.ptr<f32>) : i32 {
        %r = tt.addptr %q, %c2 : !tt.ptr<f32>, i32
        scf.yield %r : !tt.ptr<f32>
      }
      %value = tt.load %end : !tt.ptr<f32>
      %more_sum = arith.addf %sum, %value : f32
      scf.yield %more_sum : f32
    }
    tt.store %out, %total : !tt.ptr<f32>
    tt.return
  }
}
