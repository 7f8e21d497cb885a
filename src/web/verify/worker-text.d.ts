/** A source as the text of one script, bundled with its imports (src/web/bundle.ts). */
declare module '*.ts?text' {
  const text: string
  export default text
}
