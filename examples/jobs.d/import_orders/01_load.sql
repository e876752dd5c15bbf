-- Each file is a transaction: until this one is done, everybody sees the orders of before.
DELETE FROM orders WHERE id < 1000;
INSERT INTO orders
SELECT id, day, customer, product, quantity, price
  FROM read_csv('${DATA_DIR:-data}/orders.csv', header = true, columns = {
       'id': 'INTEGER', 'day': 'DATE', 'customer': 'VARCHAR',
       'product': 'VARCHAR', 'quantity': 'INTEGER', 'price': 'DECIMAL(8, 2)'});
