/** A source file with its imports, imported as the text of one script (src/web/bundle.ts). */
declare module '*.ts?text' {
  const text: string
  export default text
}
