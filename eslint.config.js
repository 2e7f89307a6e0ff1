import js from "@eslint/js";

// What a browser or node has is for tsc to know, which checks the types of every module of the product.
export default [
  { ignores: [".venv/**", "site/**", "build/**"] },
  {
    files: ["src/witness/**/*.js", "tests/web/**/*.js"],
    ...js.configs.recommended,
    rules: {
      ...js.configs.recommended.rules,
      "no-undef": "off",
      "no-empty": ["error", { allowEmptyCatch: true }],
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-param-reassign": "error",
      "no-shadow": ["error", { builtinGlobals: false }],
      "no-use-before-define": ["error", { functions: false, variables: false }],
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
      "prefer-template": "error",
      eqeqeq: "error",
    },
  },
  { files: ["tests/web/**/*.js"], rules: { "no-shadow": "off" } },
  { linterOptions: { reportUnusedDisableDirectives: "error" } },
];
