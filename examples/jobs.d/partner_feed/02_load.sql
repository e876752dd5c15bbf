INSERT INTO orders SELECT * FROM read_csv('${DATA_DIR:-data}/partner.csv', header = true);
