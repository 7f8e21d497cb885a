/**
 * A source file, imported as the text of one script. The script includes everything that the source
 * file imports (src/web/bundle.ts).
 */
declare module '*.ts?text' {
  const text: string
  export default text
}
