/** Imports of style sheets are only for the bundler. */
declare module '*.css'
